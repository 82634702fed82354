/* Small behaviours by data attribute: copy, sheets, confirmations, closing. Delegated, so exchanged parts have them. */

export function mountCommon() {
  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-copy], [data-copy-from], [data-sheet], [data-close]");
    if (!target) return;
    if (target.matches("[data-close]")) target.closest("dialog")?.close();
    else if (target.matches("[data-copy]")) copy(target, target.dataset.copy);
    else if (target.matches("[data-copy-from]")) copyFrom(target);
    else if (openSheet(target)) event.preventDefault();
  });
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  }
  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.confirm;
    if (question && !confirm(question)) event.preventDefault();
  });
  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll("details:is(.more, .menu)[open]")) {
      if (!menu.contains(event.target)) menu.open = false;
    }
  });
}

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "visually-hidden";
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.dataset.copied = "";
  const label = button.querySelector("span:not(.idle, .done)");
  const before = label?.textContent;
  if (label) label.textContent = "Copied";
  setTimeout(() => {
    delete button.dataset.copied;
    if (label) label.textContent = before;
  }, 1500);
}

async function copyFrom(button) {
  const answer = await fetch(button.dataset.copyFrom, { credentials: "same-origin" });
  if (answer.ok) await copy(button, await answer.text());
}

function openSheet(link) {
  const sheet = document.getElementById("sheet");
  const content = document.getElementById(link.dataset.sheet)?.content;
  if (!sheet || !content) return false;
  document.getElementById("sheet-title").textContent = link.dataset.sheetTitle ?? "";
  document.getElementById("sheet-body").replaceChildren(content.cloneNode(true));
  sheet.showModal();
  return true;
}
