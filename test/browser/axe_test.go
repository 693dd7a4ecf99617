package browser

import (
	"os"
	"strings"
	"sync"
)

var axe = sync.OnceValues(func() (string, error) {
	raw, err := os.ReadFile("../../web/node_modules/axe-core/axe.min.js")
	return string(raw), err
})

// finding is what axe-core says of a rule that is broken.
type finding struct {
	ID     string `json:"id"`
	Impact string `json:"impact"`
	Help   string `json:"help"`
	Nodes  []struct {
		HTML    string `json:"html"`
		Summary string `json:"failureSummary"`
	} `json:"nodes"`
}

// accessible has axe-core look at the page. It comes in by the browser's debugging protocol: the page's own policy allows no
// foreign script.
func (p *tab) accessible(what string) {
	p.t.Helper()
	script, err := axe()
	if err != nil {
		p.t.Fatal(err)
	}
	if !eval[bool](p, "typeof axe !== 'undefined'") {
		p.run(script + ";0")
	}
	found := eval[[]finding](p, `axe.run(document, { resultTypes: ["violations"] }).then((r) => r.violations)`)
	for _, f := range found {
		if f.Impact != "serious" && f.Impact != "critical" {
			continue
		}
		for _, n := range f.Nodes {
			p.t.Errorf("%s: %s (%s): %s\n%s\n%s", what, f.ID, f.Impact, f.Help, n.HTML, strings.TrimSpace(n.Summary))
		}
	}
}
