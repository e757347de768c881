// Runs before the first paint, so that nobody sees the other theme flash.
document.documentElement.dataset.theme = localStorage.getItem("memos.theme") ?? "auto";
