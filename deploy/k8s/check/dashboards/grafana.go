// Package dashboards has Warren's dashboards for Grafana. They are written down here as titles and expressions, and made into Grafana's JSON, so that
// a test can go through the expressions and all panels look alike.
package dashboards

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// Dashboard is one dashboard.
type Dashboard struct {
	File  string // without .json, the dashboard's uid too
	Title string
	About string
	// PerQueue: it needs figures of single queues, and has variables for virtual hosts and queues.
	PerQueue bool
	Rows     []Row
}

// Row is a part of a dashboard under a heading.
type Row struct {
	Title  string
	Panels []Panel
}

// Panel is one plot, number or table.
type Panel struct {
	Title string
	Help  string // shown on request
	Unit  string // Grafana's
	Kind  Kind
	// Alarm colours a number above 0 red.
	Alarm   bool
	Queries []Query
}

// Kind is how a panel looks.
type Kind uint8

// The kinds.
const (
	Plot   Kind = iota // lines over time
	Stack              // lines on top of each other
	Number             // the newest value
	Table              // newest values by label
)

// Query is an expression of PromQL. In it {S} stands for the selection by namespace and job, {S,x="y"} adds to it, {Q} selects by
// virtual host and queue too, and [R] is a window in which there are enough samples for a rate.
type Query struct{ Expr, Legend string }

// Selection are the labels by which {S} selects, and QueueSelection those that {Q} adds.
const (
	selection      = `namespace=~"$namespace",job=~"$job"`
	queueSelection = selection + `,vhost=~"$vhost",queue=~"$queue"`
)

// expand puts in what stands for something else.
func expand(expr string) string {
	return strings.NewReplacer("{S}", "{"+selection+"}", "{S,", "{"+selection+",", "{Q}", "{"+queueSelection+"}", "{Q,", "{"+queueSelection+",", "[R]", "[$__rate_interval]").Replace(expr)
}

// Fill puts values of Grafana's variables into an expression: everything, with the window for rates.
func Fill(expr, window string) string {
	for _, v := range []string{"$namespace", "$job", "$vhost", "$queue"} {
		expr = strings.ReplaceAll(expr, v, ".*")
	}
	return strings.ReplaceAll(expr, "$__rate_interval", window)
}

// Expressions are all of a panel, as Grafana has them.
func (p Panel) Expressions() []string {
	list := make([]string, len(p.Queries))
	for i, q := range p.Queries {
		list[i] = expand(q.Expr)
	}
	return list
}

// object is one of Grafana's.
type object = map[string]any

var datasource = object{"type": "prometheus", "uid": "${datasource}"}

// Width and height of panels, in Grafana's units, of which a row has 24.
const (
	rowWidth     = 24
	plotWidth    = 8
	plotHeight   = 8
	numberWidth  = 4
	numberHeight = 4
)

// JSON is the dashboard as Grafana imports it.
func (d Dashboard) JSON() []byte {
	var panels []object
	id, y := 0, 0
	put := func(p object, x, w, h int) {
		id++
		p["id"], p["gridPos"] = id, object{"x": x, "y": y, "w": w, "h": h}
		panels = append(panels, p)
	}
	for _, r := range d.Rows {
		put(object{"type": "row", "title": r.Title, "collapsed": false, "panels": []object{}}, 0, rowWidth, 1)
		y++
		x, height := 0, 0
		for _, p := range r.Panels {
			w, h := p.size()
			if x+w > rowWidth {
				x, y, height = 0, y+height, 0
			}
			put(p.json(), x, w, h)
			x, height = x+w, max(height, h)
		}
		y += height
	}
	raw, err := json.MarshalIndent(object{
		"uid": d.File, "title": d.Title, "description": d.About, "tags": []string{"warren"}, "editable": true, "graphTooltip": 1,
		"schemaVersion": 39, "refresh": "30s", "time": object{"from": "now-1h", "to": "now"}, "timezone": "",
		"links":      []object{{"type": "dashboards", "title": "Warren", "tags": []string{"warren"}, "asDropdown": true, "includeVars": true, "keepTime": true}},
		"templating": object{"list": d.variables()}, "panels": panels,
	}, "", " ")
	if err != nil {
		panic(fmt.Sprintf("dashboard %s: %v", d.File, err)) // maps of strings and numbers
	}
	return append(raw, '\n')
}

// variables are what is chosen at the dashboard's head.
func (d Dashboard) variables() []object {
	list := []object{
		{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
		variable("namespace", "Namespace", "label_values(rabbitmq_identity_info, namespace)"),
		variable("job", "Job", `label_values(rabbitmq_identity_info{namespace=~"$namespace"}, job)`),
	}
	if d.PerQueue {
		list = append(list,
			variable("vhost", "Virtual host", "label_values(rabbitmq_detailed_queue_messages{"+selection+"}, vhost)"),
			variable("queue", "Queue", "label_values(rabbitmq_detailed_queue_messages{"+selection+`,vhost=~"$vhost"}, queue)`))
	}
	return list
}

func variable(name, label, query string) object {
	// ".*" selects series without the label, too: there are no namespaces outside of Kubernetes.
	return object{
		"name": name, "label": label, "type": "query", "datasource": datasource, "query": object{"query": query, "refId": name}, "definition": query,
		"refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*", "current": object{"text": "All", "value": "$__all"},
	}
}

func (p Panel) size() (w, h int) {
	switch p.Kind {
	case Number:
		return numberWidth, numberHeight
	case Table:
		return rowWidth / 2, plotHeight
	}
	return plotWidth, plotHeight
}

func (p Panel) json() object {
	targets := make([]object, len(p.Queries))
	for i, q := range p.Queries {
		targets[i] = object{"datasource": datasource, "refId": string(rune('A' + i)), "expr": expand(q.Expr), "legendFormat": q.Legend}
		if p.Kind == Number || p.Kind == Table {
			targets[i]["instant"] = true
		}
		if p.Kind == Table {
			targets[i]["format"] = "table"
		}
	}
	defaults := object{"unit": p.Unit, "min": 0}
	panel := object{
		"title": p.Title, "description": p.Help, "datasource": datasource, "targets": targets, "fieldConfig": object{"defaults": defaults, "overrides": []object{}},
	}
	maps.Copy(panel, p.look(defaults))
	return panel
}

// look is what is peculiar to a kind.
func (p Panel) look(defaults object) object {
	switch p.Kind {
	case Number:
		steps := []object{{"color": "text", "value": nil}}
		if p.Alarm {
			steps = []object{{"color": "green", "value": nil}, {"color": "red", "value": 1e-9}}
		}
		defaults["thresholds"] = object{"mode": "absolute", "steps": steps}
		return object{"type": "stat", "options": object{"colorMode": "value", "graphMode": "area", "reduceOptions": object{"calcs": []string{"lastNotNull"}}}}
	case Table:
		return object{
			"type": "table", "options": object{"showHeader": true, "sortBy": []object{{"displayName": "Value", "desc": true}}},
			"transformations": []object{{"id": "organize", "options": object{"excludeByName": object{"Time": true, "__name__": true, "job": true, "namespace": true}}}},
		}
	}
	custom := object{"fillOpacity": 8, "lineWidth": 1, "showPoints": "never"}
	if p.Kind == Stack {
		custom["stacking"], custom["fillOpacity"] = object{"mode": "normal"}, 30
	}
	defaults["custom"] = custom
	return object{"type": "timeseries", "options": object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}}}
}
