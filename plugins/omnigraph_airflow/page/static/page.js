// Follows the theme of Airflow, and leads links into Airflow out of its frame. The page reads without it.
"use strict";

function followTheme() {
  const theme = localStorage.getItem("theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

// The frame is sandboxed: it may not move the window around it, but a link of that window may.
function leaveFrame(event) {
  const link = event.target.closest("a[data-airflow]");
  if (!link || window.parent === window || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const outside = window.parent.document.createElement("a");
  outside.href = link.href;
  window.parent.document.body.append(outside);
  outside.click();
  outside.remove();
  event.preventDefault();
}

followTheme();
window.addEventListener("storage", followTheme);
document.addEventListener("click", leaveFrame);
