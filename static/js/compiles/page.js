import { mountSpans } from "#js/compiles/spans.js";

const spans = JSON.parse(document.getElementById("compile-data").textContent);
const box = document.querySelector(".timeline-box");
if (box) mountSpans(box, spans);
