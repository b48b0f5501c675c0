// This classic script in the head applies the theme before the first paint.
try {
  const chosen = localStorage.getItem("stepscope-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage may be blocked; the system's choice then applies.
}
