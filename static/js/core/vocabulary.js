// The statistics and the classes of health, as the page names them.
export const vocabulary = JSON.parse(document.getElementById("vocabulary").textContent);

/** Statistics by name, in the order of columns: label, title, kind and class of health. */
export const STATISTICS = vocabulary.statistics;
export const NONFINITE = Object.keys(STATISTICS).filter((name) => STATISTICS[name].kind === "nonfinite");
