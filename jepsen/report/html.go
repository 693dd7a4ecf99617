package report

import (
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/warrenmq/warren/jepsen/history"
)

// page is all of the HTML report. Its style follows the reader's choice of light or dark.
var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"seconds": func(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()) },
}).Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{.Verdict}}: {{.Workload}}, seed {{.Seed}}</title>
<style>
:root{color-scheme:light dark;--ink:#222;--dim:#777;--bg:#fff;--line:#ddd}
@media(prefers-color-scheme:dark){:root{--ink:#ddd;--dim:#999;--bg:#181818;--line:#3a3a3a}}
body{font:14px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--bg);max-width:1240px;margin:1.5em auto;padding:0 1em}
table{border-collapse:collapse;margin:.6em 0}td,th{border-bottom:1px solid var(--line);padding:.2em .8em .2em 0;text-align:left;vertical-align:top}
code,pre{font-size:12px}pre{white-space:pre-wrap}svg text{fill:var(--dim);font:11px system-ui,sans-serif}svg .axis{stroke:var(--line)}
.valid{color:#2a8a3a}.invalid{color:#c62828;font-weight:600}
</style></head><body>
<h1>{{.Workload}}: <span class="{{if .Valid}}valid{{else}}invalid{{end}}">{{.Verdict}}</span></h1>
<p>{{.System}}, {{.Nodes}} nodes, network of {{.Network}}, nemeses {{range $i, $n := .Nemeses}}{{if $i}}, {{end}}{{$n}}{{end}}; seed {{.Seed}};
begun {{.Begun.Format "2006-01-02 15:04:05 MST"}}; {{.Ops}} operations.<br>Repeat: <code>{{.Repeat}}</code></p>
{{range .Errors}}<pre class="invalid">{{.}}</pre>{{end}}
{{.Timeline}}
<table><tr><th>checker</th><th></th><th>what it saw</th></tr>
{{range .Results}}<tr><td>{{.Checker}}</td><td class="{{if .Valid}}valid{{else}}invalid{{end}}">{{if .Skipped}}skipped{{else if .Valid}}valid{{else}}{{.Count}} problems{{end}}</td>
<td>{{.Summary}}{{range .Problems}}<pre>{{.}}</pre>{{end}}{{range .Figures}}<br><small>{{.Name}}: {{.Value}}</small>{{end}}</td></tr>
{{end}}</table>
<table><tr><th>fault</th><th>from s</th><th>to s</th><th>what</th></tr>
{{range .Faults}}<tr><td>{{.Name}}</td><td>{{seconds .Begin}}</td><td>{{seconds .End}}</td><td>{{.What}} {{.Error}}</td></tr>
{{end}}</table>
</body></html>
`))

// HTML writes the page.
func HTML(w io.Writer, r Report, ops []history.Op) error {
	var svg strings.Builder
	timeline(&svg, r, ops)
	return page.Execute(w, struct {
		Report
		// Timeline is made here of numbers and of escaped names.
		Timeline template.HTML
	}{r, template.HTML(svg.String())})
}
