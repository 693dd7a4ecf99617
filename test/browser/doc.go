// Package browser tests the management page as somebody uses it: Debian's Chromium, driven by
// chromedp, against three real nodes. It is a part of make test-page. Pictures of what it saw are in
// .run/page, for people to look at.
package browser
