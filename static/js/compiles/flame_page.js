// The page of compile time: the chart's data comes from the server, its view stands in the address.
import { debounce, onKeys } from "#js/core/dom.js";
import { spent } from "#js/compiles/flame_model.js";
import { FlameView } from "#js/compiles/flame_view.js";
import { formatNs } from "#js/core/format.js";

const flame = JSON.parse(document.getElementById("flame-data").textContent);
const log = new URL(location.href).searchParams.get("log");

async function spans(values) {
  const query = new URLSearchParams({ ...(log ? { log } : {}), ...values });
  try {
    const answer = await fetch(`/compile-time/spans.json?${query}`);
    return answer.ok ? await answer.json() : null;
  } catch {
    return null; // The server was ended; what is on the page stays.
  }
}

const remember = debounce((view, isWhole) => {
  const url = new URL(location.href);
  for (const [name, value] of [["start_ns", view.start], ["end_ns", view.end]]) {
    if (isWhole) url.searchParams.delete(name);
    else url.searchParams.set(name, Math.round(value));
  }
  if (url.href !== location.href) history.replaceState(null, "", url);
}, 200);

function say(view) {
  document.querySelector(".view-span").textContent = `${formatNs(Math.round(spent(flame.gaps, view)))} in view`;
}

const view = new FlameView(document.querySelector(".flame-box"), flame, {
  fetchWindow: (start_ns, end_ns, width) => spans({ start_ns, end_ns, width }),
  onView(shown, isWhole) {
    say(shown);
    remember(shown, isWhole);
  },
  onOpen({ compile, log: of }) {
    location.href = `/compile/${encodeURIComponent(compile.replaceAll("/", "_"))}?log=${of}`;
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
