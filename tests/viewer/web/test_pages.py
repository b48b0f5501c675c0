"""Every page, its JSON twin, and what keeps a hostile log from being more than text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import httpx
import jsonschema
import pytest

from stepscope.tracer.schema.graphs import LaunchKind
from stepscope.tracer.schema.steps import Steps
from stepscope.viewer.compare.page import ComparePage
from stepscope.viewer.compiles.compile_page import CompilePage
from stepscope.viewer.compiles.page import CompilesPage
from stepscope.viewer.compiles.provenance_page import ProvenancePage
from stepscope.viewer.graphs.page import GraphPage, GraphsPage
from stepscope.viewer.judged.page import JudgePage
from stepscope.viewer.overview.page import OverviewPage
from stepscope.viewer.problems.page import ProblemsPage
from stepscope.viewer.ranks.page import RankDifferencePage, RanksPage
from stepscope.viewer.records.page import RecordShown, RecordsPage
from stepscope.viewer.search.page import SearchPage, SqlPage, TablesPage
from stepscope.viewer.steps.page import StepPage, StepsPage
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.limits_page import LimitsPage
from stepscope.viewer.values.page import (
    BufferPage,
    BuffersPage,
    CurvePage,
    KernelPage,
    KernelsPage,
    MagnitudesPage,
    SitesPage,
    ValuesPage,
)
from stepscope.viewer.web import assets, parameters, registry
from tests.logs import overflow_log, synthetic
from tests.logs.synthetic import LogBuilder
from tests.viewer.client import Client
from tests.viewer.compiles import test_compile_summary
from tests.viewer.memory import test_memory_pages

Opened = Callable[[LogBuilder | bytes], Trace]

PATHS = {
    "/": OverviewPage,
    "/steps": StepsPage,
    "/steps/1?log=0&launch=5": StepPage,
    "/graphs": GraphsPage,
    "/graphs/0?site=1": GraphPage,
    "/graphs/0/buffers": BuffersPage,
    "/graphs/0/buffers/buf0": BufferPage,
    "/kernels": KernelsPage,
    "/kernels/cpp_fused_relu_0": KernelPage,
    "/limits": LimitsPage,
    "/sites?name=aten.mm": SitesPage,
    "/values?log=0": ValuesPage,
    "/magnitudes?log=0&of=outputs": MagnitudesPage,
    "/curves?site=0&argument=2&moment=after&statistic=mean": CurvePage,
    "/compile": CompilesPage,
    "/compile/0_0?log=0": CompilePage,
    "/compile/0_0/provenance?log=0": ProvenancePage,
    "/compare?left=0&left_step=0&right=0&right_step=1": ComparePage,
    "/judge": JudgePage,
    "/ranks": RanksPage,
    "/ranks/difference": RankDifferencePage,
    "/records?text=graph": RecordsPage,
    "/records/3": RecordShown,
    "/search?text=mm": SearchPage,
    "/tables": TablesPage,
    "/sql?query=select+1": SqlPage,
    "/problems": ProblemsPage,
}
JSON_PATHS = ["/summary.json", "/launches/5.json", "/steps/1/timeline.json?log=0&width=100", "/steps/1/area.json?log=0"]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with open_trace(overflow_log.recorded().write(tmp_path_factory.mktemp("trace") / "recorded.log")) as trace:
        yield Client(trace)


def twin(path: str) -> str:
    address, _, query = path.partition("?")
    return f"{'/index' if address == '/' else address}.json?{query}"


def valid(value: Any, api: dict[str, Any], name: str) -> None:
    jsonschema.Draft202012Validator({"$ref": f"#/components/schemas/{name}", **api}).validate(value)


def policy(answer: httpx.Response) -> dict[str, str]:
    parts = answer.headers["content-security-policy"].split("; ")
    return {name: value for name, _, value in (part.partition(" ") for part in parts)}


def test_every_page_has_a_case() -> None:
    patterns = {page.path: re.sub(r"\{\w+\}", "[^/]+", page.path) for page in registry.pages()}
    asked = [path.partition("?")[0] for path in (*PATHS, *test_memory_pages.PATHS, *test_compile_summary.PATHS)]
    assert not {path for path, pattern in patterns.items() if not any(re.fullmatch(pattern, one) for one in asked)}
    assert len(asked) == len(patterns)


@pytest.mark.slow
def test_the_api_describes_every_twin(client: Client) -> None:
    described = client.get("/openapi.json").json()["paths"]
    assert set(described) == {twin.path for twin in registry.twins()}
    assert {twin(path.partition("?")[0]).rstrip("?") for path in ("/", "/steps", "/graphs")} <= set(described)
    names = [parameter["name"] for parameter in described["/steps/{step}.json"]["get"]["parameters"]]
    assert names == ["step", "log", "launch"]


def test_the_api_types_every_parameter(client: Client) -> None:
    api = client.get("/openapi.json").json()
    for path, methods in api["paths"].items():
        for parameter in methods["get"]["parameters"]:
            assert parameter["schema"]["type"] in ("integer", "string"), (path, parameter)
            assert parameter["description"].endswith("."), (path, parameter)
    width = api["paths"]["/steps/{step}/timeline.json"]["get"]["parameters"][-1]
    assert width == {
        "name": "width", "in": "query", "required": False, "schema": {"type": "integer", "minimum": 1},
        "description": "The number of bins in the answer: about one for each pixel.",
    }  # fmt: skip
    for one in registry.twins():
        assert set(re.findall(r"{(\w+)}", one.path)) <= {parameter.name for parameter in one.parameters}, one.path
    shared = [value for value in vars(parameters).values() if isinstance(value, parameters.AddressParameter)]
    used = [parameter for one in registry.twins() for parameter in one.parameters]
    assert not [parameter for parameter in shared if parameter.name not in {one.name for one in used}]


def test_the_api_documents_refusals(client: Client) -> None:
    api = client.get("/openapi.json").json()
    for path, methods in api["paths"].items():
        assert set(methods["get"]["responses"]) == {"200", "404", "422", "500"}, path
        schema = methods["get"]["responses"]["404"]["content"]["application/json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/Refusal"}, path
    answer = client.get("/steps/99.json")
    assert answer.status_code == 404
    valid(answer.json(), api, "Refusal")


def test_the_summary_has_the_form_that_the_api_says(client: Client) -> None:
    api = client.get("/openapi.json").json()
    schema = api["paths"]["/summary.json"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert schema == {"$ref": "#/components/schemas/Summary"}
    valid(client.get("/summary.json").json(), api, "Summary")


@pytest.mark.parametrize("path", PATHS)
def test_page_is_shown(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.text.startswith("<!doctype html>")
    assert answer.text.count("<h1") == 1


@pytest.mark.parametrize(("path", "context"), PATHS.items())
def test_twin_has_the_keys_of_the_context(client: Client, path: str, context: type) -> None:
    answer = client.get(twin(path))
    assert answer.status_code == 200
    assert list(answer.json()) == [field.name for field in fields(context)]


@pytest.mark.parametrize("path", [*PATHS, *map(twin, PATHS), *JSON_PATHS, "/nothing", "/static/js/core/page.js"])
def test_every_answer_is_guarded(client: Client, path: str) -> None:
    answer = client.get(path)
    rules = policy(answer)
    assert rules["default-src"] == "'none'"
    assert "'unsafe-inline'" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("path", PATHS)
def test_inline_scripts_are_data_or_the_hashed_import_map(client: Client, path: str) -> None:
    answer = client.get(path)
    for attributes, text in re.findall(r"<script([^>]*)>(.*?)</script>", answer.text, re.DOTALL):
        if "src=" in attributes:
            assert not text
        elif "importmap" in attributes:
            assert assets.csp_hash(text) in policy(answer)["script-src"]
        else:
            assert 'type="application/json"' in attributes
    assert not re.search(r"<[^>]+\sstyle=", answer.text), "style attributes are refused by the policy"
    assert not re.search(r"<[^>]+\son\w+=", answer.text)


@pytest.mark.parametrize("path", JSON_PATHS)
def test_json_answers(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"


def test_launch_address_leads_to_its_step(client: Client) -> None:
    answer = client.get("/launches/5")
    assert (answer.status_code, answer.headers["location"]) == (303, "/steps/1?log=0&launch=5")


MISSING = [
    "/steps/99",
    "/steps/x",
    "/steps/-1",
    "/steps/99999999999999999999",
    "/steps/1?launch=777",
    "/steps/1?log=4",
    "/graphs/7",
    "/graphs/7/buffers",
    "/graphs/0/buffers/nothing",
    "/kernels/nothing",
    "/kernels/~3Cscript~3E",
    "/values?log=3",
    "/values?log=-1",
    "/curves",
    "/curves?site=0&argument=77",
    "/curves?site=0&argument=2&moment=never",
    "/launches/99999",
    "/records/99999",
    "/compile/9_9",
    "/nothing",
    "/static/../pyproject.toml",
    "/static/js/none.js",
]


@pytest.mark.parametrize("path", MISSING)
def test_missing_things_are_said_in_a_sentence(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("path", [path for path in MISSING if "?" not in path and "static" not in path])
def test_missing_json_has_one_shape(client: Client, path: str) -> None:
    answer = client.get(f"{path}.json")
    assert answer.status_code == 404
    assert set(answer.json()) == {"ok", "error"}
    assert answer.json()["ok"] is False


def test_other_methods_are_refused(client: Client) -> None:
    assert client.get("/", method="POST").status_code in {404, 405}


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8686", "localhost.evil.example", "", "127.0.0.1.evil.example"]
)
def test_foreign_hosts_are_refused(client: Client, host: str) -> None:
    answer = client.get("/", host=host)
    assert answer.status_code == 400
    assert "content-security-policy" in answer.headers


@pytest.mark.parametrize("host", ["localhost", "localhost:9000", "127.0.0.1:1", "[::1]:8686", "[::1]"])
def test_local_hosts_are_served_at_any_port(client: Client, host: str) -> None:
    assert client.get("/problems", host=host).status_code == 200


def test_raw_payload_is_a_download(client: Client) -> None:
    found = client.get("/records.json?kind=inductor_output_code").json()["page"]["rows"]
    answer = client.get(f"/records/{found[0]['record']}/raw")
    assert answer.text.rstrip("\n") == synthetic.WRAPPER.rstrip("\n")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["content-disposition"].startswith("attachment")


HOSTILE = "</script><img src=x onerror=alert(1)>'\"&{{7*7}}‮"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    graph = synthetic.graph()
    sites = [replace(site, kernel=HOSTILE, function="call", aten=[HOSTILE]) for site in graph.sites]
    log = LogBuilder().record(synthetic.run(argv=[HOSTILE], devices=[HOSTILE]))
    synthetic.compile_records(log, co_name=HOSTILE, co_filename=f"/src/{HOSTILE}", fail_reason=HOSTILE, fail_type="E")
    log.artifact(HOSTILE, HOSTILE.encode(), "string")
    log.record(replace(graph, sites=sites, wrapper_key=HOSTILE, functions=["call", "call"]))
    start_ns = synthetic.MONOTONIC_NS
    log.record(synthetic.calls(0, 0, start_ns))
    log.record(Steps([0], ["train"], ["user"], [start_ns], [start_ns + 9_000]))
    log.raw(b"garbage " + HOSTILE.encode() + b"\n")
    with open_trace(log.write(tmp_path_factory.mktemp("trace") / "hostile.log")) as trace:
        yield Client(trace)


HOSTILE_PATHS = ["/", "/steps", "/steps/0?launch=0", "/graphs", "/graphs/0", "/compile", "/compile/0_0", "/problems"]


@pytest.mark.parametrize("path", [*HOSTILE_PATHS, "/records", f"/records?text={HOSTILE}&kind={HOSTILE}"])
def test_log_text_stays_text(hostile: Client, path: str) -> None:
    text = hostile.get(path).text
    assert "<img" not in text
    assert "</script><img" not in text
    assert "49" not in re.findall(r"alert\(1\)[^\d]{0,40}?(49)", text)


def test_javascript_links_are_not_made(hostile: Client) -> None:
    for path in HOSTILE_PATHS:
        hrefs = re.findall(r'href="([^"]*)"', hostile.get(path).text)
        assert all(href.startswith(("/", "#", "data:image/svg+xml", "vscode://file/")) for href in hrefs)


def test_assets_load_nothing_from_elsewhere() -> None:
    files = [*assets.static_files().values(), *assets.folder("templates").rglob("*.html")]
    for path in files:
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://", text), path
    assert len(files) > 20


def test_every_script_is_in_the_import_map() -> None:
    named = set()
    for path in assets.script_modules().values():
        named |= set(re.findall(r'from "(#[^"]+)"|import "(#[^"]+)"', path.read_text("utf-8")))
    wanted = {name for pair in named for name in pair if name}
    assert wanted <= set(assets.served_import_map()["imports"])


def test_modules_stay_small() -> None:
    for path in assets.script_modules().values():
        assert len(path.read_text("utf-8").splitlines()) <= 300, path


def test_static_files_lie_in_the_checkout_or_the_package() -> None:
    assert (assets.folder("templates") / "core" / "frame.html").is_file()
    assert Path(assets.static_files()["css/core/page.css"]).is_file()


def test_every_sheet_is_linked() -> None:
    templates = "".join(path.read_text("utf-8") for path in assets.folder("templates").rglob("*.html"))
    linked = {f"css/{sheet}.css" for sheet in assets.SHEETS} | set(re.findall(r"/static/(css/[^\"]+)", templates))
    assert linked == {name for name in assets.static_files() if name.endswith(".css")}


def test_every_kind_of_launch_has_its_colour() -> None:
    text = assets.content("css/core/colours.css").decode()
    assert re.findall(r"--kinds: ([^;]+);", text) == [" ".join(get_args(LaunchKind))]
    for kind in get_args(LaunchKind):
        assert f"--kind-{kind}:" in text
        assert f".kind-{kind} {{" in text


def test_log_of_pytorch_alone_says_how_to_record_launches(opened: Opened) -> None:
    log = synthetic.compile_records(LogBuilder())
    client = Client(opened(log))
    for path in ("/", "/steps"):
        assert "stepscope run -- python train.py" in client.get(path).text
    assert client.get("/index.json").json()["overview"]["counts"]["launches"] is None


def test_the_page_of_problems_lists_compiles_that_failed(opened: Opened) -> None:
    log = synthetic.compile_records(LogBuilder(), fail_type="X", fail_reason="y")
    text = Client(opened(log)).get("/problems").text
    assert "No compile failed." not in text
    assert "/compile/0_0?log=0" in text
