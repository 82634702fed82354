/* Mounts a module on each element with data-module, once. */

const modules = {
  theme: () => import("./theme.js"),
  checks: () => import("./checks.js"),
  calibration: () => import("./calibration.js"),
  status: () => import("./status.js"),
  autosubmit: () => import("./autosubmit.js"),
  tabs: () => import("./tabs.js"),
  ladder: () => import("./ladder.js"),
  run: () => import("./run.js"),
  rollout: () => import("./rollout.js"),
  overview: () => import("./overview.js"),
  authoring: () => import("./authoring.js"),
  "authoring-files": () => import("./authoring_files.js"),
  "authoring-bulk": () => import("./authoring_bulk.js"),
  "authoring-registration": () => import("./authoring_registration.js"),
  search: () => import("./search.js"),
  "search-form": () => import("./search_form.js"),
  "harness-import": () => import("./harness_import.js"),
  print: () => import("./print.js"),
  regrade: () => import("./regrade.js"),
  "rubric-preview": () => import("./rubric_preview.js"),
  "rubric-editor": () => import("./rubric_editor.js"),
  "run-bulk": () => import("./run_bulk.js"),
  review: () => import("./review.js"),
  "review-new": () => import("./review_new.js"),
  "review-ticks": () => import("./review_ticks.js"),
  curves: () => import("./curves.js"),
  list: () => import("./list.js"),
  ledger: () => import("./ledger.js"),
  tryout: () => import("./tryout.js"),
  again: () => import("./again.js"),
};

export async function mountAll(root) {
  for (const element of root.querySelectorAll("[data-module]")) {
    const load = modules[element.dataset.module];
    if (!load || element.dataset.mounted !== undefined) continue;
    element.dataset.mounted = "";
    const { mount } = await load();
    mount(element);
  }
}
