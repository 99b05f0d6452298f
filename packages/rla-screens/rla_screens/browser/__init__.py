"""Web pages in a real Chromium: MiniWoB++ as text with enumerated commands, or as pixels (`docs/guide/browser.md`)."""
