package definitions

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/policy"
)

// Source is what an export says of where it comes from.
type Source struct {
	// Product and Version are what clients are told.
	Product, Version string
	Cluster          string
}

// Export returns what a view has: of one virtual host, or with "" of all. Left out are queues that are exclusive or not
// durable, what the broker itself makes, and bindings of these. The order is that of the names. Values of arguments that are not UTF-8 cannot be
// said in JSON; where that changes some, Altered and Explanation tell.
func Export(v *catalog.View, vhost string, from Source) *Document {
	d := &Document{
		RabbitVersion: from.Version, RabbitMQVersion: from.Version, ProductName: from.Product, ProductVersion: from.Version,
		Parameters: []Parameter{}, Policies: []Policy{}, Queues: []Queue{}, Exchanges: []Exchange{}, Bindings: []Binding{},
	}
	if vhost != "" {
		d.Format, d.OriginalVhostName = FormatVhost, vhost
		d.Explanation = fmt.Sprintf("Definitions of virtual host '%s'", vhost)
	} else {
		d.Format, d.OriginalClusterName = FormatCluster, from.Cluster
		d.Explanation = fmt.Sprintf("Definitions of cluster '%s'", from.Cluster)
		d.GlobalParameters = []Parameter{}
		d.exportAccess(v)
	}
	for h := range v.Vhosts() {
		if vhost == "" || h.Name == vhost {
			d.exportVhost(v, h, vhost != "")
		}
	}
	if n := len(d.Altered); n > 0 {
		named := strings.Join(d.Altered[:min(n, alteredNamed)], "; ")
		if n > alteredNamed {
			named += fmt.Sprintf("; and %d others", n-alteredNamed)
		}
		d.Explanation += ". " + alteredText + ": " + named
	}
	return d
}

// alteredText begins the part of Document.Explanation that names Document.Altered.
const alteredText = "Arguments with bytes that are not UTF-8 are altered, each byte replaced by U+FFFD"

// alteredNamed bounds how many objects with altered arguments Document.Explanation names.
const alteredNamed = 10

// alters notes an object whose arguments are not written as they are.
func (d *Document) alters(t amqp.Table, format string, args ...any) {
	if !isText(t) {
		d.Altered = append(d.Altered, fmt.Sprintf(format, args...))
	}
}

// isText tells whether JSON has the names and strings of a value as they are.
func isText(v any) bool {
	switch v := v.(type) {
	case string:
		return utf8.ValidString(v)
	case []byte:
		return utf8.Valid(v)
	case amqp.Table:
		return !slices.ContainsFunc(v, func(f amqp.Field) bool { return !utf8.ValidString(f.Name) || !isText(f.Value) })
	case amqp.Array:
		return !slices.ContainsFunc(v, func(x any) bool { return !isText(x) })
	}
	return true
}

// exportAccess adds users, virtual hosts and permissions.
func (d *Document) exportAccess(v *catalog.View) {
	d.Users, d.Vhosts, d.Permissions, d.TopicPermissions = []User{}, []Vhost{}, []Permission{}, []TopicPermission{}
	for u := range v.Users() {
		d.Users = append(d.Users, userOf(u))
	}
	for h := range v.Vhosts() {
		d.Vhosts = append(d.Vhosts, vhostOf(h))
	}
	for p := range v.Permissions() {
		d.Permissions = append(d.Permissions, permissionOf(p))
	}
	for p := range v.TopicPermissions() {
		d.TopicPermissions = append(d.TopicPermissions, topicPermissionOf(p))
	}
}

func userOf(u *auth.User) User {
	hash, list := string(u.PasswordHash), append(tags{}, u.Tags...)
	return User{Name: u.Name, PasswordHash: &hash, HashingAlgorithm: u.PasswordHash.Algorithm(), Tags: &list, Limits: limitsOf(u.Limits.Each)}
}

func vhostOf(h *catalog.Vhost) Vhost {
	list, typ := append(tags{}, h.Tags...), h.DefaultQueueType
	if typ == "" {
		typ = broker.TypeOf(nil)
	}
	return Vhost{
		Name: h.Name, Description: &h.Description, Tags: &list, DefaultQueueType: &typ, Protected: &h.Protected, Limits: limitsOf(h.Limits.Each),
		Metadata: vhostMetadata{Description: &h.Description, Tags: &list, DefaultQueueType: &typ},
	}
}

func limitsOf(each func(func(string, *auth.Limit))) limits {
	l := limits{}
	each(func(name string, v *auth.Limit) {
		if v.Set {
			l[name] = v.Value
		}
	})
	return l
}

func permissionOf(p *auth.Permission) Permission {
	return Permission{p.User, p.Vhost, p.Pattern(auth.Configure), p.Pattern(auth.Write), p.Pattern(auth.Read)}
}

func topicPermissionOf(p *auth.TopicPermission) TopicPermission {
	return TopicPermission{p.User, p.Vhost, p.Exchange, p.Pattern(auth.Write), p.Pattern(auth.Read)}
}

// exportVhost adds what is in a virtual host, which is named unless bare.
func (d *Document) exportVhost(v *catalog.View, h *catalog.Vhost, bare bool) {
	name := h.Name
	if bare {
		name = ""
	}
	if l := limitsOf(h.Limits.Each); len(l) > 0 {
		d.Parameters = append(d.Parameters, Parameter{Component: componentLimits, VHost: name, Name: limitsName, Value: raw(l)})
	}
	for s := range v.Shovels() {
		if s.Vhost == h.Name {
			d.Parameters = append(d.Parameters, Parameter{Component: componentShovel, VHost: name, Name: s.Name, Value: json.RawMessage(s.Value)})
		}
	}
	set := v.Policies(h.Name)
	for _, p := range set.List(true) {
		value := policyOf(p, "")
		value.Name = ""
		d.Parameters = append(d.Parameters, Parameter{Component: componentOperator, VHost: name, Name: p.Name, Value: raw(value)})
	}
	for _, p := range set.List(false) {
		d.Policies = append(d.Policies, policyOf(p, name))
	}
	for q := range v.Queues(h.Name) {
		if exported(q) {
			d.Queues = append(d.Queues, queueOf(q, name))
			d.alters(q.Arguments, "queue '%s' in vhost '%s'", q.Name, h.Name)
		}
	}
	for x := range v.Exchanges(h.Name) {
		if !catalog.SystemExchange(x.Name) {
			d.Exchanges = append(d.Exchanges, exchangeOf(x, name))
			d.alters(x.Arguments, "exchange '%s' in vhost '%s'", x.Name, h.Name)
		}
	}
	for b := range v.Bindings(h.Name) {
		if b.ToExchange || exported(v.Queue(b.Vhost, b.Destination)) {
			d.Bindings = append(d.Bindings, bindingOf(b, name))
			d.alters(b.Arguments, "binding of '%s' to exchange '%s' in vhost '%s'", b.Destination, b.Source, h.Name)
		}
	}
}

func exported(q *catalog.Queue) bool {
	return q != nil && q.Durable && !q.Exclusive && !broker.ReservedName(q.Name)
}

func policyOf(p *policy.Policy, vhost string) Policy {
	return Policy{VHost: vhost, Name: p.Name, Pattern: p.Pattern, ApplyTo: new(p.ApplyTo.String()), Definition: raw(p.Definition.JSON()), Priority: p.Priority}
}

func queueOf(q *catalog.Queue, vhost string) Queue {
	return Queue{q.Name, vhost, broker.TypeOf(q.Arguments), q.Durable, q.AutoDelete, arguments{q.Arguments}}
}

func exchangeOf(x *catalog.Exchange, vhost string) Exchange {
	return Exchange{x.Name, vhost, x.Type.String(), x.Durable, x.AutoDelete, x.Internal, arguments{x.Arguments}}
}

func bindingOf(b *catalog.Binding, vhost string) Binding {
	typ := destQueue
	if b.ToExchange {
		typ = destExchange
	}
	return Binding{b.Source, vhost, b.Destination, typ, b.Key, arguments{b.Arguments}}
}

// raw is the JSON of what can be written as such.
func raw(v any) []byte {
	b, err := marshal(v)
	if err != nil {
		panic(fmt.Sprintf("definitions: %T as JSON: %v", v, err)) // tables and numbers can
	}
	return b
}

// textOfTable is the JSON of arguments: equal ones have equal texts, whatever the width of their numbers.
func textOfTable(t amqp.Table) string { return string(raw(t.JSON())) }
