// Copies text to the clipboard; the button shows the result.

export async function copy(event, text) {
  const button = event.currentTarget;
  const said = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Copy failed";
  }
  setTimeout(() => (button.textContent = said), 1500);
}
