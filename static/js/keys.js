/* Keys of every page. Letters are off while a text field has the focus; each has a visible control too. */

export function mountKeys() {
  const dialog = document.getElementById("keys");
  for (const button of document.querySelectorAll("[data-open-keys]")) {
    button.addEventListener("click", () => dialog?.showModal());
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest?.("input:not([type=radio]), select, textarea, [contenteditable]")) {
      if (event.key === "Escape" && event.target.matches("[data-filter]")) event.target.blur();
      return;
    }
    if (document.querySelector("dialog[open]") && event.key !== "?") return;
    if (handle(event.key, dialog)) event.preventDefault();
  });
}

function handle(key, dialog) {
  switch (key) {
    case "?":
      if (!dialog) return false;
      if (dialog.open) dialog.close();
      else dialog.showModal();
      return true;
    case "/": {
      const field = document.querySelector("[data-filter]");
      field?.focus();
      field?.select?.();
      const search = field ? null : document.querySelector('a[data-key="/"]');
      search?.click();
      return Boolean(field ?? search);
    }
    case "r":
      location.reload();
      return true;
    case "j":
    case "k":
      return move(key === "j" ? 1 : -1);
    case "[":
    case "]": {
      const link = document.querySelector(`a[data-key="${key}"]`);
      link?.click();
      return Boolean(link);
    }
    case "t":
    case "ArrowLeft":
    case "ArrowRight":
      return forTrace(key);
    case "n":
    case "p":
      if (document.querySelector(`a[data-key="${key}"]`)) {
        document.querySelector(`a[data-key="${key}"]`).click();
        return true;
      }
      return forTrace(key);
    default:
      return false;
  }
}

/* Says whether the page has a trace that does something by this key. */
function forTrace(key) {
  return !document.dispatchEvent(new CustomEvent("switchback:key", { detail: key, cancelable: true }));
}

/* The row cursor of a list: the focus moves along the rows' links. */
function move(step) {
  const rows = [...document.querySelectorAll("[data-row]")].filter((row) => !row.hidden && row.offsetParent !== null);
  if (!rows.length) return false;
  const at = rows.findIndex((row) => row.classList.contains("cursor") || row === document.activeElement);
  const next = rows[Math.max(0, Math.min(rows.length - 1, at + step))];
  for (const row of rows) row.classList.remove("cursor");
  next.classList.add("cursor");
  const link = next.matches("a") ? next : next.querySelector("a.main-link, a");
  link?.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
  return true;
}
