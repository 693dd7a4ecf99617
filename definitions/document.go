package definitions

import (
	"encoding/json"

	"github.com/warrenmq/warren/amqp"
)

// The values of Document.Format.
const (
	FormatCluster = "cluster"
	FormatVhost   = "single_virtual_host"
)

// Document is definitions as RabbitMQ's tools write them. Those of one virtual host have no users, and nothing in them
// names the virtual host: these lists are nil then.
type Document struct {
	RabbitVersion       string `json:"rabbit_version,omitempty"`
	RabbitMQVersion     string `json:"rabbitmq_version,omitempty"`
	ProductName         string `json:"product_name,omitempty"`
	ProductVersion      string `json:"product_version,omitempty"`
	Format              string `json:"rabbitmq_definition_format,omitempty"`
	OriginalClusterName string `json:"original_cluster_name,omitempty"`
	OriginalVhostName   string `json:"original_vhost_name,omitempty"`
	Explanation         string `json:"explanation,omitempty"`

	Users            []User            `json:"users,omitzero"`
	Vhosts           []Vhost           `json:"vhosts,omitzero"`
	Permissions      []Permission      `json:"permissions,omitzero"`
	TopicPermissions []TopicPermission `json:"topic_permissions,omitzero"`
	Parameters       []Parameter       `json:"parameters"`
	GlobalParameters []Parameter       `json:"global_parameters,omitzero"`
	Policies         []Policy          `json:"policies"`
	Queues           []Queue           `json:"queues"`
	Exchanges        []Exchange        `json:"exchanges"`
	Bindings         []Binding         `json:"bindings"`

	// Altered are the objects of an export whose arguments have bytes that are not UTF-8, which JSON has other characters for.
	Altered []string `json:"-"`
	// Unknown are the keys that are none of these.
	Unknown []string `json:"-"`
}

// User is a user. What is nil is not said: a user that is there keeps it.
type User struct {
	Name             string  `json:"name"`
	PasswordHash     *string `json:"password_hash,omitempty"`
	HashingAlgorithm string  `json:"hashing_algorithm,omitempty"`
	// Password is for files that people write.
	Password *string `json:"password,omitempty"`
	Tags     *tags   `json:"tags,omitempty"`
	Limits   limits  `json:"limits"`
}

// Vhost is a virtual host. RabbitMQ 3.10 has what describes it in Metadata, newer ones in both places.
type Vhost struct {
	Name             string        `json:"name"`
	Description      *string       `json:"description,omitempty"`
	Tags             *tags         `json:"tags,omitempty"`
	DefaultQueueType *string       `json:"default_queue_type,omitempty"`
	Protected        *bool         `json:"protected_from_deletion,omitempty"`
	Tracing          *bool         `json:"tracing,omitempty"`
	Limits           limits        `json:"limits"`
	Metadata         vhostMetadata `json:"metadata"`
}

type vhostMetadata struct {
	Description      *string `json:"description,omitempty"`
	Tags             *tags   `json:"tags,omitempty"`
	DefaultQueueType *string `json:"default_queue_type,omitempty"`
	Protected        *bool   `json:"protected_from_deletion,omitempty"`
	Tracing          *bool   `json:"tracing,omitempty"`
}

// Permission is what a user may do in a virtual host.
type Permission struct {
	User      string `json:"user"`
	VHost     string `json:"vhost"`
	Configure string `json:"configure"`
	Write     string `json:"write"`
	Read      string `json:"read"`
}

// TopicPermission is what a user may do with the keys of an exchange.
type TopicPermission struct {
	User     string `json:"user"`
	VHost    string `json:"vhost"`
	Exchange string `json:"exchange"`
	Write    string `json:"write"`
	Read     string `json:"read"`
}

// Parameter is a runtime parameter: limits of a virtual host, an operator policy, or what a plugin of RabbitMQ keeps there.
type Parameter struct {
	Component string          `json:"component,omitempty"`
	VHost     string          `json:"vhost,omitempty"`
	Name      string          `json:"name"`
	Value     json.RawMessage `json:"value"`
}

// The components of parameters that are known here.
const (
	componentLimits   = "vhost-limits"
	componentOperator = "operator_policy"
	componentShovel   = "shovel"
	// limitsName is the name of the only parameter of componentLimits.
	limitsName = "limits"
)

// Policy is a policy. Without ApplyTo it is one of everything.
type Policy struct {
	VHost      string          `json:"vhost,omitempty"`
	Name       string          `json:"name,omitempty"`
	Pattern    string          `json:"pattern"`
	ApplyTo    *string         `json:"apply-to,omitempty"`
	Definition json.RawMessage `json:"definition"`
	Priority   int64           `json:"priority"`
}

// Queue is a queue. Type is what RabbitMQ 4 adds to what the arguments say.
type Queue struct {
	Name       string    `json:"name"`
	VHost      string    `json:"vhost,omitempty"`
	Type       string    `json:"type,omitempty"`
	Durable    bool      `json:"durable"`
	AutoDelete bool      `json:"auto_delete"`
	Arguments  arguments `json:"arguments"`
}

// Exchange is an exchange.
type Exchange struct {
	Name       string    `json:"name"`
	VHost      string    `json:"vhost,omitempty"`
	Type       string    `json:"type"`
	Durable    bool      `json:"durable"`
	AutoDelete bool      `json:"auto_delete"`
	Internal   bool      `json:"internal"`
	Arguments  arguments `json:"arguments"`
}

// Binding is a binding.
type Binding struct {
	Source          string    `json:"source"`
	VHost           string    `json:"vhost,omitempty"`
	Destination     string    `json:"destination"`
	DestinationType string    `json:"destination_type"` // destQueue or destExchange
	RoutingKey      string    `json:"routing_key"`
	Arguments       arguments `json:"arguments"`
}

const (
	destQueue    = "queue"
	destExchange = "exchange"
)

// arguments are a table, in JSON an object. An empty list is one without arguments.
type arguments struct{ amqp.Table }

// tags are a list of words, or in older files a text with commas.
type tags []string

// limits are numbers by their names. An empty list is none.
type limits map[string]int64
