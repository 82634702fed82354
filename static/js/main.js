/* Mounts a module on each element with data-module, and what every page has: keys, copy, sheets, confirmations. */
import { mountKeys } from "./keys.js";
import { mountCommon } from "./common.js";

document.documentElement.classList.add("js");

const modules = {
  theme: () => import("./theme.js"),
  status: () => import("./status.js"),
  autosubmit: () => import("./autosubmit.js"),
  tabs: () => import("./tabs.js"),
  ladder: () => import("./ladder.js"),
  run: () => import("./run.js"),
  rollout: () => import("./rollout.js"),
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

mountCommon();
mountKeys();
await mountAll(document);
document.documentElement.dataset.ready = "";
