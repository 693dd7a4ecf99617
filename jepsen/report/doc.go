// Package report writes what came of a run: as text, as JSON, and as one page of HTML
// with a timeline of operations, faults and latencies that needs nothing from elsewhere.
package report
