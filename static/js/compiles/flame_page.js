// The page of compile time: data comes from the server, and the view is kept in the address.
import { spent } from "#js/compiles/flame_model.js";
import { FlameView } from "#js/compiles/flame_view.js";
import { compileHref, setState } from "#js/core/address.js";
import { debounce, onKeys } from "#js/core/dom.js";
import { formatNs } from "#js/core/format.js";
import { getJson, goTo } from "#js/core/server.js";

const flame = JSON.parse(document.getElementById("flame-data").textContent);
const log = new URL(location.href).searchParams.get("log");

const spans = (values) => getJson(`/compile-time/spans.json?${new URLSearchParams({ ...(log ? { log } : {}), ...values })}`);

const remember = debounce((view, isWhole) => {
  const at = (ns) => (isWhole ? null : Math.round(ns));
  setState({ start_ns: at(view.start), end_ns: at(view.end) });
}, 200);

function say(view) {
  document.querySelector(".view-span").textContent = `${formatNs(Math.round(spent(flame.gaps, view)))} of the chart in view`;
}

const view = new FlameView(document.querySelector(".flame-box"), flame, {
  fetchWindow: (start_ns, end_ns, width) => spans({ start_ns, end_ns, width }),
  onView(shown, isWhole) {
    say(shown);
    remember(shown, isWhole);
  },
  onOpen({ compile, log: of }) {
    goTo(compileHref(compile, of));
  },
});
say(view.view);
if (flame.window_start_ns > 0 || flame.window_end_ns < flame.end_ns) spans({}).then((whole) => whole && view.setWhole(whole));

view.listenTo(document);
onKeys(view.keys());
for (const button of document.querySelectorAll(".show-longest")) {
  button.addEventListener("click", () => {
    const { start, duration } = button.closest("tr").dataset;
    view.fitTo(Number(start), Number(start) + Number(duration));
    view.box.scrollIntoView({ block: "nearest" });
  });
}
