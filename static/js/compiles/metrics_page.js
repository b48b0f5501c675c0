// The table of metrics: the checked columns become one parameter of the address.
const form = document.getElementById("metrics-form");

form?.addEventListener("submit", () => {
  const chosen = [...form.querySelectorAll(".columns input:checked")].map((box) => box.value);
  const before = form.elements.columns.value.split(",").filter((name) => chosen.includes(name));
  form.elements.columns.value = [...before, ...chosen.filter((name) => !before.includes(name))].join(",");
});
