package main

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// document mirrors the parts of the specification XML that the codec needs.
type document struct {
	Constants []constant `xml:"constant"`
	Domains   []domain   `xml:"domain"`
	Classes   []class    `xml:"class"`
}

type constant struct {
	Name  string `xml:"name,attr"`
	Value int    `xml:"value,attr"`
	Class string `xml:"class,attr"` // soft-error, hard-error or empty
}

type domain struct {
	Name string `xml:"name,attr"`
	Type string `xml:"type,attr"`
}

type class struct {
	Name    string   `xml:"name,attr"`
	Handler string   `xml:"handler,attr"`
	Index   uint16   `xml:"index,attr"`
	Fields  []field  `xml:"field"`
	Methods []method `xml:"method"`
}

type method struct {
	Name        string    `xml:"name,attr"`
	Index       uint16    `xml:"index,attr"`
	Synchronous bool      `xml:"synchronous,attr"`
	Content     bool      `xml:"content,attr"`
	Chassis     []chassis `xml:"chassis"`
	Responses   []named   `xml:"response"`
	Fields      []field   `xml:"field"`
}

// chassis names the side that implements a method, which is the side that receives it.
type chassis struct {
	Name string `xml:"name,attr"`
}

type named struct {
	Name string `xml:"name,attr"`
}

type field struct {
	Name     string `xml:"name,attr"`
	Rename   string `xml:"rename,attr"` // overlay only: the name used in Go
	Domain   string `xml:"domain,attr"`
	Type     string `xml:"type,attr"`
	Reserved bool   `xml:"reserved,attr"`
}

func (m method) received(side string) bool {
	return slices.ContainsFunc(m.Chassis, func(c chassis) bool { return c.Name == side })
}

// load reads the extended definition in dir, merges the overlay and resolves
// every field's domain to its wire type.
func load(dir string) (*document, error) {
	doc, err := parse(filepath.Join(dir, "amqp0-9-1.stripped.extended.xml"))
	if err != nil {
		return nil, err
	}
	over, err := parse(filepath.Join(dir, "overlay.xml"))
	if err != nil {
		return nil, err
	}
	doc.merge(over)
	if err := doc.resolve(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(doc.Constants, func(a, b constant) int { return a.Value - b.Value })
	slices.SortFunc(doc.Classes, func(a, b class) int { return int(a.Index) - int(b.Index) })
	for i := range doc.Classes {
		slices.SortFunc(doc.Classes[i].Methods, func(a, b method) int { return int(a.Index) - int(b.Index) })
	}
	return doc, nil
}

func parse(path string) (*document, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read definition: %w", err)
	}
	doc := new(document)
	if err := xml.Unmarshal(raw, doc); err != nil {
		return nil, fmt.Errorf("parse %s: %w", filepath.Base(path), err)
	}
	return doc, nil
}

func (d *document) merge(over *document) {
	d.Constants = append(d.Constants, over.Constants...)
	for _, oc := range over.Classes {
		i := slices.IndexFunc(d.Classes, func(c class) bool { return c.Name == oc.Name })
		if i < 0 {
			d.Classes = append(d.Classes, oc)
			continue
		}
		c := &d.Classes[i]
		for _, of := range oc.Fields {
			j := slices.IndexFunc(c.Fields, func(f field) bool { return f.Name == of.Name })
			if j < 0 {
				c.Fields = append(c.Fields, of)
			} else {
				c.Fields[j] = of
			}
		}
		for _, om := range oc.Methods {
			j := slices.IndexFunc(c.Methods, func(m method) bool { return m.Name == om.Name })
			if j < 0 {
				c.Methods = append(c.Methods, om)
			} else {
				c.Methods[j] = om
			}
		}
	}
}

func (d *document) resolve() error {
	types := map[string]string{}
	for _, dom := range d.Domains {
		types[dom.Name] = dom.Type
	}
	fix := func(owner string, fields []field) error {
		for i := range fields {
			f := &fields[i]
			if f.Type == "" {
				f.Type = types[f.Domain]
			}
			if _, ok := goTypes[f.Type]; !ok {
				return fmt.Errorf("%s.%s: no wire type for domain %q", owner, f.Name, f.Domain)
			}
			if f.Rename == "" {
				f.Rename = f.Name
			}
		}
		return nil
	}
	for i := range d.Classes {
		c := &d.Classes[i]
		if err := fix(c.Name, c.Fields); err != nil {
			return err
		}
		for j := range c.Methods {
			if err := fix(c.Name+"."+c.Methods[j].Name, c.Methods[j].Fields); err != nil {
				return err
			}
		}
	}
	return nil
}

// goTypes maps wire types of method arguments and properties to Go types.
var goTypes = map[string]string{
	"bit": "bool", "octet": "uint8", "short": "uint16", "long": "uint32", "longlong": "uint64",
	"shortstr": "string", "longstr": "string", "timestamp": "Timestamp", "table": "Table",
}

// goName turns a name of the specification into Go case: queue-name becomes QueueName, class-id ClassID.
func goName(parts ...string) string {
	var b strings.Builder
	for _, part := range parts {
		for word := range strings.SplitSeq(part, "-") {
			if word == "id" {
				b.WriteString("ID")
				continue
			}
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}
