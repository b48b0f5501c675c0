// What served pages ask the server for. In a folder of pages, js/exports/folder.js takes the place of this module.

/** Whether the pages can ask for more than they were written with. */
export const HAS_SERVER = true;
export const NO_LAUNCH = "The server did not return this launch.";

/** Returns the response to a GET, or null if there is none; the page then stays as it is. */
export async function getJson(url, options = {}) {
  try {
    const answer = await fetch(url, options);
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}

/** Opens the page at an address of the dashboard. */
export function goTo(address) {
  location.href = address;
}
