// Shows how far the index is; the page that was asked for is loaded once, when the index is there.
const EVERY_MS = 1_000;

const bar = document.getElementById("building-bar");
const what = document.getElementById("building-what");
const share = document.getElementById("building-share");
const problem = document.getElementById("building-problem");

setTimeout(look, EVERY_MS);

async function look() {
  try {
    const answer = await fetch("/building.json", { cache: "no-store" });
    if (!answer.ok) return location.reload();
    show((await answer.json()).building);
    problem.textContent = "";
  } catch {
    problem.textContent = "The server does not respond: it may have ended, and its terminal says why.";
  }
  setTimeout(look, EVERY_MS);
}

function show(building) {
  what.textContent = building.what;
  const isKnown = building.share !== null;
  share.textContent = isKnown ? `${Math.round(100 * building.share)} %` : "";
  if (isKnown) bar.value = building.share;
  else bar.removeAttribute("value");
}
