package config

import (
	"slices"
	"testing"
)

func TestStrays(t *testing.T) {
	got := Strays([]string{
		"WARREN_BOOTSTRAP_EXPEKT=3", "WARREN_BOOTSTRAP_EXPECT=3", "WARREN_CONFIG=/etc/warren.yaml", "WARREN_NODE=", "PATH=/bin", "MY_WARREN_NODE=1", "WARREN_CTL_PROFILE=x", "WARREN_NODE_ID",
		"WARREN_SERVICE_HOST=10.0.0.1", "WARREN_SERVICE_PORT_AMQP=5672", "WARREN_PORT=tcp://10.0.0.1:5672", "WARREN_NODES_PORT_5672_TCP=tcp://10.0.0.1:5672", "WARREN_PORT_5672_TCP_ADDR=10.0.0.1",
	})
	if want := []string{"WARREN_BOOTSTRAP_EXPEKT", "WARREN_NODE"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, o := range Options() {
		if services.MatchString(o.Env()) {
			t.Errorf("a service could be what sets %s", o.Env())
		}
	}
}
