// A classic script in the head: the chosen theme is there before the first paint.
try {
  const chosen = localStorage.getItem("stepscope-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage can be forbidden; then the system's choice holds.
}
