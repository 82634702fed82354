/* A form sends the names of a folder's files without their paths: they go beside them. */

export function mount(form) {
  const files = form.querySelector('[name="files"]');
  const archive = form.querySelector('[name="archive"]');
  const told = form.querySelector("[data-count]");
  const limit = Number(form.dataset.maxFiles);
  const hint = told.textContent;
  files.addEventListener("change", () => {
    const paths = [...files.files].map((file) => file.webkitRelativePath || file.name);
    form.querySelector('[name="paths"]').value = paths.length ? JSON.stringify(paths) : "";
    const isTooMany = paths.length > limit;
    files.setCustomValidity(isTooMany ? `The folder has ${paths.length} files; at most ${limit} can be sent. Make a zip file of it.` : "");
    told.textContent = paths.length ? `${paths.length} file${paths.length === 1 ? "" : "s"} chosen${isTooMany ? `; at most ${limit} can be sent: make a zip file of it` : ""}` : hint;
    if (paths.length) archive.value = "";
  });
  archive.addEventListener("change", () => {
    if (!archive.files.length || !files.files.length) return;
    files.value = "";
    files.dispatchEvent(new Event("change"));
  });
}
