// What runs when the page is there.
document.querySelectorAll("table:not(.facts)").forEach((table) => {
  if (table.tHead) sortable(table, table.closest("figure") ? () => {} : searchable(table));
});
document.querySelectorAll("button.copy").forEach(copyable);
colours();
drawWhenSeen();
explore();
foldable();
