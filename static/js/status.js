/* Keeps the status bar fresh while the page is looked at. */

const EVERY_MS = 10000;

export function mount(element) {
  const look = async () => {
    if (document.hidden) return;
    try {
      const answer = await fetch(element.dataset.url, { credentials: "same-origin" });
      if (answer.ok) show((await answer.json()).signs);
      else if (answer.status >= 500) show([{ name: "database", level: "bad", text: "the server answers with an error" }]);
    } catch {
      show([{ name: "database", level: "bad", text: "the server does not answer" }]);
    }
  };
  setInterval(look, EVERY_MS);
  setTimeout(look, 1200);
}

function show(signs) {
  for (const { name, level, text, detail = "" } of signs) {
    for (const sign of document.querySelectorAll(`.state[data-name="${name}"]`)) {
      sign.dataset.level = level;
      const words = sign.querySelector("[data-text]") ?? sign;
      if (words.textContent === text) continue;
      words.textContent = text;
      // What was told beside the former state is not true of the new one.
      const beside = sign.parentElement.querySelector("[data-detail]");
      if (beside) {
        beside.textContent = detail;
        beside.hidden = !detail;
      } else if (detail) {
        sign.title = detail;
      } else {
        sign.removeAttribute("title");
      }
    }
  }
}
