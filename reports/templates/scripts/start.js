// What runs when the page is there.
document.querySelectorAll("table:not(.facts)").forEach(usable);
unpackable();
document.querySelectorAll("button.copy").forEach(copyable);
colours();
explore();
foldable();
chartFiles();
