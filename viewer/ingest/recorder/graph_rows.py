"""The rows of graphs: their launch sites, arguments, scalars and memory statements, and the tensors of their calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from stepscope.tracer.schema.records import (
    PRINTED_KEY,
    PRINTER_LEAVES_OUT,
    Argument,
    Graph,
    LaunchSite,
    Provenance,
    SameTensors,
    Tensors,
    TunedKernels,
)
from stepscope.viewer.ingest.damage import Damage
from stepscope.viewer.ingest.lenient_json import dumps
from stepscope.viewer.ingest.recorder.launch_batches import function_name
from stepscope.viewer.ingest.rows import Rows
from stepscope.viewer.ingest.torch_trace.model_lines import ModelLine, model_lines
from stepscope.viewer.ingest.torch_trace.torch_events import OutputCode
from stepscope.viewer.ingest.torch_trace.torch_text import UserFrame
from stepscope.viewer.kernel_source.arithmetic import value_text

_LOST = "its graph record is missing or broken"


class GraphRows:
    """Adds the rows of one log's graphs; knows the ids in the index of graphs and sites."""

    def __init__(self, log: int, rows: Rows, damage: Damage) -> None:
        self.log, self.rows, self.damage = log, rows, damage
        self.graphs: dict[int, Graph] = {}
        self.provenance: dict[int, Provenance] = {}
        self._graph_ids: dict[int, int] = {}
        self._site_ids: dict[tuple[int, int], int] = {}

    def add(self, codes: Collection[OutputCode], callers: Mapping[str, UserFrame], is_ours: bool) -> None:
        """Add a row for each graph, and for each generated wrapper of `codes` that was not loaded; `callers`: the lines
        that called what each compile id compiled; `is_ours`: stepscope wrote the log."""
        code_of = {code.wrapper_key: code for code in codes}
        for graph in self.graphs.values():
            code = code_of.get(graph.wrapper_key)
            with self.damage.contained(f"graph {graph.graph}"):
                self._add_graph(graph, code.record if code else None, callers.get(graph.compile_id or ""))
        loaded = {graph.wrapper_key for graph in self.graphs.values()}
        for code in codes:
            if not is_ours:
                self._add_code(code, None)
            elif code.wrapper_key not in loaded:
                self._add_code(code, "the recorder did not see this wrapper being loaded")

    def known_graph(self, number: int | None) -> int | None:
        """Id in the index of a graph that has a row."""
        return None if number is None else self._graph_ids.get(number)

    def known_site(self, number: int, site: int) -> int | None:
        """Id in the index of a site that has a row."""
        return self._site_ids.get((number, site))

    def function(self, number: int, function: int) -> str:
        graph = self.graphs.get(number)
        return function_name(graph.functions if graph else [], function)

    def phase(self, number: int) -> str | None:
        graph = self.graphs.get(number)
        return graph.phase if graph else None

    def graph_id(self, number: int) -> int:
        """Id in the index; a graph whose record is lost gets a row that says so."""
        if number not in self._graph_ids:
            self.damage.add("unknown_graph", f"graph {number}: {_LOST}")
            self._graph_ids[number] = graph_id = self.rows.new_id("graphs")
            self.rows.add("graphs", graph_id, self.log, number, *(None,) * 7, _LOST, None, "[]", None)
        return self._graph_ids[number]

    def site_id(self, number: int, site: int) -> int:
        """Id in the index of site `site` of graph `number`; made up when the graph's record is lost."""
        key = number, site
        if key not in self._site_ids:
            graph_id = self.graph_id(number)
            self._site_ids[key] = site_id = self.rows.new_id("sites")
            self.rows.add(
                "sites", site_id, graph_id, self.log, site, "", None, f"site {site}", "unknown", None, None, None,
                "[]", "[]", "[]", "[]", "[]",
            )  # fmt: skip
        return self._site_ids[key]

    def _add_graph(self, graph: Graph, output_code: int | None, caller: UserFrame | None) -> None:
        graph_id = self._graph_ids[graph.graph] = self.rows.new_id("graphs")
        self.rows.add(
            "graphs", graph_id, self.log, graph.graph, graph.wrapper_key, graph.compile_id, graph.aot_id, graph.phase,
            graph.cached, graph.dynamic, None if graph.not_recorded else len(graph.sites), graph.not_recorded,
            output_code, dumps(graph.functions), graph.operands_left_out or _left_out(graph),
        )  # fmt: skip
        self.rows.extend(
            "memory_statements",
            ((graph_id, m.event, m.buffer, m.function, m.line, m.of) for m in graph.memory),
        )
        provenance = self.provenance.get(graph.graph)
        stacks = model_lines(provenance, [site.site for site in graph.sites], caller)
        nodes = {site.site: site.fx_nodes for site in provenance.sites} if provenance else {}
        new = {site.site: site for site in reversed(graph.sites) if (graph.graph, site.site) not in self._site_ids}
        sites = [site for site in graph.sites if new.get(site.site) is site]
        for site in sites:  # arguments name sites that come later
            self._site_ids[graph.graph, site.site] = self.rows.new_id("sites")
        for site in sites:
            self._add_site(graph.graph, graph_id, site, stacks.get(site.site, []), nodes.get(site.site, []))

    def _add_site(
        self, number: int, graph_id: int, site: LaunchSite, stacks: list[list[ModelLine]], nodes: list[str]
    ) -> None:
        site_id = self._site_ids[number, site.site]
        self.rows.add(
            "sites", site_id, graph_id, self.log, site.site, site.function, site.line, site.kernel, site.kind,
            site.operator, site.handle, None if site.snodes is None else dumps(site.snodes), dumps(site.outputs),
            dumps(site.source_nodes), dumps(site.aten), dumps(nodes), dumps(stacks),
        )  # fmt: skip
        self.rows.extend(
            "arguments",
            (
                (site_id, i, a.name, a.role, a.buffer, a.parameter, a.storage, a.held, *self._version(number, a))
                for i, a in enumerate(site.arguments)
            ),
        )
        self.rows.extend(
            "scalars",
            (
                (site_id, i, s.position, s.name, s.expression, s.type, value_text(s.expression, lambda name: None))
                for i, s in enumerate(site.scalars)
            ),
        )

    def _version(self, number: int, argument: Argument) -> tuple[int | None, int | None, str | None, int | None]:
        """Where the value row of what an argument held stands; a site that is not in the graph is none."""
        version = argument.version
        site = None if version is None else self._site_ids.get((number, version.site))
        if version is None or site is None:
            return None, None, None, None
        return site, version.argument, version.moment, version.item

    def _add_code(self, code: OutputCode, not_recorded: str | None) -> None:
        """A graph of which only the generated code is known."""
        phase = (code.aot_id or "").partition("_")[2]
        self.rows.add(
            "graphs", self.rows.new_id("graphs"), self.log, None, code.wrapper_key, code.compile_id, code.aot_id,
            phase if phase in ("forward", "backward", "inference") else None, code.cached, None, None, not_recorded,
            code.record, "[]", None,
        )  # fmt: skip

    def add_tensors(self, seen: Tensors | SameTensors, place: int) -> None:
        site_id = self.site_id(seen.graph, seen.site)
        if isinstance(seen, SameTensors):
            self.rows.add("same_tensors", self.log, seen.call, site_id, seen.argument, seen.of, place)
            return
        self.rows.extend(
            "tensors",
            (
                (site_id, self.log, seen.call, t.argument, t.item, t.dtype, dumps(t.size), dumps(t.stride),
                 t.device, t.offset, t.storage_bytes, t.storage, place)
                for t in seen.tensors
            ),
        )  # fmt: skip

    def add_tuned(self, tuned: TunedKernels) -> None:
        graph = self.graph_id(tuned.graph)
        pairs = zip(tuned.kernel, tuned.config, strict=True)
        self.rows.extend("tuned_kernels", ((self.log, graph, kernel, dumps(config)) for kernel, config in pairs))


def _left_out(graph: Graph) -> str | None:
    """Of graphs whose record does not say it: those that were made from printed text."""
    return PRINTER_LEAVES_OUT if graph.wrapper_key.startswith(PRINTED_KEY) else None
