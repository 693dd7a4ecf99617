package definitions

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/shovel"
)

// shovel plans one. RabbitMQ has protocols and URIs that are not here.
func (p *planner) shovel(item Item, value json.RawMessage) {
	value = ofPairs(value)
	var text bytes.Buffer
	if err := json.Compact(&text, value); err != nil {
		p.problem(item, "%v", err)
		return
	}
	if _, err := shovel.Parse(value); err != nil {
		p.unsupported(item, "%v", err)
		return
	}
	cmd := &catalog.PutShovel{Vhost: item.VHost, Name: item.Name, User: p.opt.User, Value: text.String()}
	var list []Difference
	old := p.view.Shovel(item.VHost, item.Name)
	if old != nil {
		list = shovelDifferences(old.Value, cmd.Value)
		cmd.User = old.User
	}
	p.add(stageShovels, item, old != nil, list, change{commands: []catalog.Command{cmd}})
}

// shovelDifferences are those between two shovels. URIs, which have passwords, are not shown.
func shovelDifferences(have, want string) (list []Difference) {
	if have == want {
		return nil
	}
	var a, b fields
	if json.Unmarshal([]byte(have), &a) != nil || json.Unmarshal([]byte(want), &b) != nil {
		return []Difference{{Field: "value"}}
	}
	for name := range a {
		if _, ok := b[name]; !ok {
			b[name] = nil
		}
	}
	list = differences(a, b)
	for i := range list {
		if strings.HasSuffix(list[i].Field, "-uri") {
			list[i].From, list[i].To = "(one)", "(another)"
		}
	}
	return list
}
