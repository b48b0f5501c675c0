"""Adds the rows of graphs: launch sites, arguments, scalars, memory statements, and the tensors of calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from stepscope.tracer.schema.constants import PRINTED_KEY, PRINTER_LEAVES_OUT
from stepscope.tracer.schema.graphs import Argument, Graph, LaunchSite, Provenance, SiteProvenance
from stepscope.tracer.schema.launches import SameTensors, Tensors, TunedKernels
from stepscope.viewer.ingest.damage import Damage
from stepscope.viewer.ingest.lenient_json import dumps
from stepscope.viewer.ingest.recorder.launch_batches import function_name
from stepscope.viewer.ingest.rows import IndexRows
from stepscope.viewer.ingest.torch_trace.model_lines import ModelLine, model_lines
from stepscope.viewer.ingest.torch_trace.torch_events import OutputCode
from stepscope.viewer.ingest.torch_trace.torch_text import UserFrame
from stepscope.viewer.kernel_source.arithmetic import value_text

_LOST = "its graph record is missing or broken"


class GraphRows:
    """Adds the rows of one log's graphs, and maps graphs and sites to their ids in the index."""

    def __init__(self, log: int, rows: IndexRows, damage: Damage) -> None:
        self.log, self.rows, self.damage = log, rows, damage
        self.graphs: dict[int, Graph] = {}
        self.provenance: dict[int, Provenance] = {}
        self._graph_ids: dict[int, int] = {}
        self._site_ids: dict[tuple[int, int], int] = {}

    def add(self, codes: Collection[OutputCode], callers: Mapping[str, UserFrame], is_ours: bool) -> None:
        """Add a row for each graph, and for each generated wrapper of `codes` that was not loaded. `callers` are the
        lines that called each compiled function, by compile id; `is_ours` says that stepscope wrote the log."""
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
        """Return the id of a graph in the index, or None if it has no row."""
        return None if number is None else self._graph_ids.get(number)

    def known_site(self, number: int, site: int) -> int | None:
        """Return the id of a site in the index, or None if it has no row."""
        return self._site_ids.get((number, site))

    def function(self, number: int, function: int) -> str:
        graph = self.graphs.get(number)
        return function_name(graph.functions if graph else [], function)

    def phase(self, number: int) -> str | None:
        graph = self.graphs.get(number)
        return graph.phase if graph else None

    def graph_id(self, number: int) -> int:
        """Return the id of a graph in the index. If its record is missing, a row is added that says so."""
        if number not in self._graph_ids:
            self.damage.add("unknown_graph", f"graph {number}: {_LOST}")
            self._graph_ids[number] = graph_id = self.rows.new_id("graphs")
            self.rows.add(
                "graphs", graph=graph_id, log=self.log, local_graph=number, not_recorded=_LOST, functions="[]"
            )
        return self._graph_ids[number]

    def site_id(self, number: int, site: int) -> int:
        """Return the id of a site in the index. If the record of its graph is missing, a row is added for it."""
        key = number, site
        if key not in self._site_ids:
            graph_id = self.graph_id(number)
            self._site_ids[key] = site_id = self.rows.new_id("sites")
            self.rows.add(
                "sites",
                site=site_id,
                graph=graph_id,
                log=self.log,
                local_site=site,
                function="",
                kernel=f"site {site}",
                kind="unknown",
                outputs="[]",
                source_nodes="[]",
                aten="[]",
                fx_nodes="[]",
                stacks="[]",
                modules="[]",
                recomputed="{}",
            )
        return self._site_ids[key]

    def _add_graph(self, graph: Graph, output_code: int | None, caller: UserFrame | None) -> None:
        graph_id = self._graph_ids[graph.graph] = self.rows.new_id("graphs")
        self.rows.add(
            "graphs",
            graph=graph_id,
            log=self.log,
            local_graph=graph.graph,
            wrapper_key=graph.wrapper_key,
            compile_id=graph.compile_id,
            aot_id=graph.aot_id,
            phase=graph.phase,
            cached=graph.cached,
            dynamic=graph.dynamic,
            launch_sites=None if graph.not_recorded else len(graph.sites),
            not_recorded=graph.not_recorded,
            output_code=output_code,
            functions=dumps(graph.functions),
            operands_left_out=graph.operands_left_out or _left_out(graph),
            matmul_precision=graph.matmul_precision,
        )
        for memory in graph.memory:
            self.rows.add(
                "memory_statements",
                graph=graph_id,
                event=memory.event,
                buffer=memory.buffer,
                function=memory.function,
                line=memory.line,
                of_buffer=memory.of,
            )
        provenance = self.provenance.get(graph.graph)
        stacks = model_lines(provenance, [site.site for site in graph.sites], caller)
        known = {site.site: site for site in provenance.sites} if provenance else {}
        new = {site.site: site for site in reversed(graph.sites) if (graph.graph, site.site) not in self._site_ids}
        sites = [site for site in graph.sites if new.get(site.site) is site]
        for site in sites:  # arguments name sites that come later
            self._site_ids[graph.graph, site.site] = self.rows.new_id("sites")
        for site in sites:
            self._add_site(graph.graph, graph_id, site, stacks.get(site.site, []), known.get(site.site))

    def _add_site(
        self, number: int, graph_id: int, site: LaunchSite, stacks: list[list[ModelLine]], known: SiteProvenance | None
    ) -> None:
        site_id = self._site_ids[number, site.site]
        self.rows.add(
            "sites",
            site=site_id,
            graph=graph_id,
            log=self.log,
            local_site=site.site,
            function=site.function,
            line=site.line,
            kernel=site.kernel,
            kind=site.kind,
            operator=site.operator,
            handle=site.handle,
            snodes=None if site.snodes is None else dumps(site.snodes),
            outputs=dumps(site.outputs),
            source_nodes=dumps(site.source_nodes),
            aten=dumps(site.aten),
            fx_nodes=dumps(known.fx_nodes if known else []),
            stacks=dumps(stacks),
            modules=dumps(known.modules if known else []),
            recomputed=dumps(known.recomputed if known else {}),
        )
        for position, argument in enumerate(site.arguments):
            self._add_argument(number, site_id, position, argument)
        for position, scalar in enumerate(site.scalars):
            self.rows.add(
                "scalars",
                site=site_id,
                scalar=position,
                position=scalar.position,
                name=scalar.name,
                expression=scalar.expression,
                type=scalar.type,
                value=value_text(scalar.expression, lambda name: None),
            )

    def _add_argument(self, number: int, site_id: int, position: int, argument: Argument) -> None:
        """Add an argument. The source of its value is NULL if the graph lacks that site."""
        version = argument.version
        version_site = None if version is None else self._site_ids.get((number, version.site))
        known = version if version_site is not None else None
        self.rows.add(
            "arguments",
            site=site_id,
            argument=position,
            name=argument.name,
            role=argument.role,
            buffer=argument.buffer,
            parameter=argument.parameter,
            storage=argument.storage,
            held=argument.held,
            version_site=version_site,
            version_argument=known.argument if known else None,
            version_moment=known.moment if known else None,
            version_item=known.item if known else None,
        )

    def _add_code(self, code: OutputCode, not_recorded: str | None) -> None:
        """Add a graph of which only the generated code is known."""
        phase = (code.aot_id or "").partition("_")[2]
        self.rows.add(
            "graphs",
            graph=self.rows.new_id("graphs"),
            log=self.log,
            wrapper_key=code.wrapper_key,
            compile_id=code.compile_id,
            aot_id=code.aot_id,
            phase=phase if phase in ("forward", "backward", "inference") else None,
            cached=code.cached,
            not_recorded=not_recorded,
            output_code=code.record,
            functions="[]",
        )

    def add_tensors(self, seen: Tensors | SameTensors, place: int) -> None:
        site_id = self.site_id(seen.graph, seen.site)
        if isinstance(seen, SameTensors):
            self.rows.add(
                "same_tensors",
                log=self.log,
                local_call=seen.call,
                site=site_id,
                argument=seen.argument,
                of_call=seen.of,
                place=place,
            )
            return
        for tensor in seen.tensors:
            self.rows.add(
                "tensors",
                site=site_id,
                log=self.log,
                local_call=seen.call,
                argument=tensor.argument,
                item=tensor.item,
                dtype=tensor.dtype,
                size=dumps(tensor.size),
                stride=dumps(tensor.stride),
                device=tensor.device,
                storage_offset=tensor.offset,
                storage_bytes=tensor.storage_bytes,
                storage_address=tensor.storage,
                place=place,
            )

    def add_tuned(self, tuned: TunedKernels) -> None:
        graph = self.graph_id(tuned.graph)
        for kernel, config in zip(tuned.kernel, tuned.config, strict=True):
            self.rows.add("tuned_kernels", log=self.log, graph=graph, kernel=kernel, config=dumps(config))


def _left_out(graph: Graph) -> str | None:
    """Return what the records of graphs parsed from printed text leave out without saying so, else None."""
    return PRINTER_LEAVES_OUT if graph.wrapper_key.startswith(PRINTED_KEY) else None
