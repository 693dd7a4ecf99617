// Package documents keeps what the documents name true: links, tests, targets of the Makefile, alerts, lines of the log, paths of the management API. What the documents say of settings, metrics and
// commands is compared in the packages that have them.
package documents
