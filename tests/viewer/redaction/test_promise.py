"""The promise of --redact: what it removes is in no form in any file, and a file with a rest of it is not written."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.redaction import scan
from stepscope.viewer.redaction.kinds import KINDS, kept_kinds
from stepscope.viewer.redaction.secrets import Secrets
from stepscope.viewer.report.archive import archive
from stepscope.viewer.report.markdown import render_markdown
from stepscope.viewer.report.ticket import Ticket, gather
from stepscope.viewer.report.write import embedded_logs, render_ticket
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.markdown import prose
from tests.logs import overflow_log, synthetic
from tests.logs.planted import PLACES, planted, secret
from tests.logs.synthetic import LogBuilder
from tests.logs.unpacking import data_of, everything
from tests.logs.value_logs import Program, Stat, ValueLog

Opened = Callable[[LogBuilder | bytes], Trace]
MARK = re.compile(r"Zq9(\w+?)x7")


def unfolded(text: str) -> str:
    return everything(text) + everything(re.sub(r"\\(.)", r"\1", text))


def of_archive(data: bytes) -> str:
    with zipfile.ZipFile(io.BytesIO(data)) as whole:
        return "\n".join(member + "\n" + unfolded(whole.read(member).decode()) for member in whole.namelist())


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted(tmp_path_factory.mktemp("planted"))


def test_a_secret_of_every_place_is_in_the_log_or_its_path(traces: Path) -> None:
    whole = str(traces) + "".join(path.name + path.read_text("utf-8") for path in traces.iterdir())
    assert {place for place in PLACES if secret(place) not in whole} == {"note"}
    assert len(PLACES) >= 30


@pytest.mark.slow
def test_no_planted_secret_is_in_report_markdown_or_archive(traces: Path) -> None:
    with open_trace(traces) as trace:
        ticket = gather(trace, redact=True, note=secret("note"))
        files = {
            "report": unfolded(render_ticket(ticket, embedded_logs(ticket, 10**9))),
            "markdown": unfolded(render_markdown(ticket)),
            "archive": of_archive(archive(ticket, None)),
        }
    for name, text in files.items():
        assert not set(MARK.findall(text)), name
        assert "Zq9" not in text, name
        assert "1.4142135" not in text, name  # an element of a tensor


@pytest.mark.slow
def test_the_same_files_hold_secrets_without_redaction(traces: Path) -> None:
    with open_trace(traces) as trace:
        ticket = gather(trace, note=secret("note"))
        assert len(set(MARK.findall(unfolded(render_ticket(ticket))))) > 15
        assert len(set(MARK.findall(unfolded(render_markdown(ticket))))) > 8


SHOWN_BY = {
    "paths": "path",
    "names": "function",
    "source": "attribute",
    "environment": "argument",
    "texts": "exception",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SHOWN_BY)
def test_each_kind_can_be_kept_without_the_others(kind: str, traces: Path) -> None:
    with open_trace(traces) as trace:
        ticket = gather(trace, redact=True, keep=frozenset([kind]))
        found = set(MARK.findall(unfolded(render_ticket(ticket)) + unfolded(render_markdown(ticket))))
    assert SHOWN_BY[kind] in found
    assert not found & {"user", "host", "note"}
    others = {place for other, place in SHOWN_BY.items() if other != kind}
    assert not found & others, found


def test_unknown_kinds_are_named() -> None:
    assert kept_kinds(" source,paths,") == {"source", "paths"}
    with pytest.raises(StepscopeError, match=r"--keep does not know colours: it takes user, host"):
        kept_kinds("source,colours")


@pytest.mark.slow
def test_the_report_lists_what_was_removed(traces: Path) -> None:
    with open_trace(traces) as trace:
        html = render_ticket(gather(trace, redact=True, keep=frozenset(["source"])))
    assert re.search(r"Removed, each counted once: names of users \(\d+\); .*paths and file names \(\d+\)", html)
    assert "Kept by request: source." in html


def packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode())).decode()


def zipped(text: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as whole:
        whole.writestr("report.html", text)
    return out.getvalue()


WORD = "alcatraz_weights"
TEXT = "/srv/p4y roll/q9z.py"
FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "within a name": lambda text: f"my_{text}_2",
    "html": lambda text: "".join(f"&#{ord(char)};" for char in text),
    "json": lambda text: "".join(f"\\u{ord(char):04x}" for char in text),
    "after an escape": lambda text: json.dumps(f"a\n{text}\tb"),
    "url": lambda text: quote(text, safe=""),
    "every byte in url": lambda text: "".join(f"%{ord(char):02X}" for char in text),
    "slug": lambda text: quote(text, safe="").replace("%", "~"),
    "markdown": prose,
    "base64": lambda text: base64.b64encode(f"some text and {text}".encode()).decode(),
    "gzip": packed,
    "gzip in gzip": lambda text: packed(packed(text)),
    "hexadecimal": lambda text: text.encode().hex(),
    "tagged": lambda text: f"<i>{text[:3]}</i>{text[3:]}",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", [WORD, TEXT])
def test_a_rest_is_found_in_every_form(form: str, text: str, opened: Opened) -> None:
    if text == TEXT and form == "within a name":
        return
    secrets, trace = Secrets({"names": {WORD}, "paths": {TEXT}}), opened(synthetic.recorded())
    kind = KINDS["names" if text == WORD else "paths"][0]
    shown = f"<p>before {FORMS[form](text)} behind</p>"
    assert scan.leftover(shown.encode(), secrets, (), trace) == kind
    assert scan.leftover(zipped(shown), secrets, (), trace) == kind


def test_the_name_of_a_member_is_looked_at(opened: Opened) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as whole:
        whole.writestr(f"logs/{WORD}.log", "")
    found = scan.leftover(out.getvalue(), Secrets({"names": {WORD}}), (), opened(synthetic.recorded()))
    assert found == KINDS["names"][0]


def test_a_word_of_the_log_that_nobody_listed_is_found(opened: Opened) -> None:
    log = synthetic.recorded().artifact("unheard_of", b"it says kryptonyte", "string")
    assert scan.leftover(b"kryptonyte", Secrets({}), (), opened(log)) == "another text of the log"
    assert scan.leftover(b"kryptonight", Secrets({}), (), opened(log)) is None


@pytest.mark.parametrize("escapes", [False, True])
def test_a_word_with_other_letters_that_nobody_listed_is_found(escapes: bool, opened: Opened) -> None:
    said = json.dumps({"text": "(überlänge)"}, ensure_ascii=escapes).encode()
    log = synthetic.recorded().artifact("unheard_of", said, "json")
    assert scan.leftover("überlänge".encode(), Secrets({}), (), opened(log)) == "another text of the log"
    assert scan.leftover("überlängen".encode(), Secrets({}), (), opened(log)) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "common",
    ["a", "me", "root", "test.py", "train.py", "forward", "model", "step", "loss", "main", "self", "relu", "buf0"],
)
def test_common_words_raise_no_alarm(common: str, opened: Opened) -> None:
    log = synthetic.recorded(argv=[f"/home/{common}/{common}.py", common], config={common: common})
    ticket = gather(opened(log), redact=True)
    render_ticket(ticket)
    render_markdown(ticket)


@pytest.mark.slow
def test_a_file_with_a_rest_is_not_written(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = gather(opened(synthetic.recorded(argv=["/home/kryptonyte/train.py"])), redact=True)
    ticket.contents.left_out.append("something of kryptonyte")
    for write in (render_ticket, render_markdown, lambda made: archive(made, None)):
        if write is render_markdown:
            ticket.left_out.append("kryptonyte")
        with pytest.raises(StepscopeError, match=r"was not written, because the check .* \(names of users\)") as raised:
            write(ticket)
        assert "kryptonyte" not in str(raised.value)


@pytest.mark.slow
def test_numbers_of_tensors_go_and_their_classes_stay(opened: Opened) -> None:
    with_values = opened(overflow_log.recorded())
    number = "65504"
    assert number in everything(render_ticket(gather(with_values)))
    values = [values for values in _values(gather(with_values, redact=True)) if values]
    assert values
    assert all(row.max is None and row.mean is None and row.elements is None for row in values)
    assert {row.health for row in values} > {"finite"}
    kept = _values(gather(with_values, redact=True, keep=frozenset(["values"])))
    assert any(row.max is not None for row in kept)


@pytest.mark.slow
def test_a_map_of_magnitudes_keeps_its_classes_only(opened: Opened) -> None:
    program = Program().launch("extern_kernels.mm", ["x"], ["buf0"], aten=["aten.mm"])
    log = ValueLog(program)
    for step in range(8):
        log.call(program, step, buf0=Stat(min=-(77.25**step), max=77.25**step, mean=0.0, std=1.0))
    trace = opened(log.end())
    route = "/magnitudes?log=0&of=outputs&statistic=largest"
    whole = data_of(render_ticket(gather(trace)))
    assert whole["plots"][route]["map"]["numbers"][0][1] == 77.25
    redacted = render_ticket(gather(trace, redact=True))
    data = data_of(redacted)
    assert data["plots"][route]["map"]["numbers"] == [[None] * 8]
    assert data["plots"][route]["map"]["cells"] == whole["plots"][route]["map"]["cells"]
    assert route in data["pages"]
    assert "77.25" not in everything(redacted)


def _values(ticket: Ticket) -> list:  # type: ignore[type-arg]
    shown = ticket.contents.shown["values"].launches.values()
    return [row for arguments in shown for one in arguments for row in [*one.before, *one.after]]


@pytest.mark.slow
@pytest.mark.parametrize("user", ["bo", "data", "model"])
@pytest.mark.parametrize("home", ["/home/", "/Users/", "C:\\Users\\"])
def test_a_user_with_a_short_or_common_name_is_not_in_a_path_that_is_kept(home: str, user: str, opened: Opened) -> None:
    log = synthetic.compile_records(synthetic.recorded(), co_filename=f"{home}{user}/train.py")
    trace = opened(log)
    kept = "".join(map(unfolded, _files(gather(trace, redact=True, keep=frozenset(["paths"])))))
    assert "train.py" in kept
    assert f"{home}{user}" not in kept
    leak = f"in {home}{user}/train.py".encode()
    assert scan.leftover(leak, Secrets({"user": {user}}), (), trace) == KINDS["user"][0]


def _files(ticket: Ticket) -> tuple[str, str]:
    return render_ticket(ticket), render_markdown(ticket)
