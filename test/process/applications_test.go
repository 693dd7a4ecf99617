package process

import "testing"

// applications are programs as people write them for RabbitMQ, of the same form as
// foreignClients.
var applications = map[string][]string{
	// Tasks with countdown, retries and workers killed in mid-task, on queues
	// declared as classic and as quorum.
	"celery": {"/usr/bin/python3", "../clients/celery/check.py"},
	// E01: 28 chained wait queues.
	"celery-native-delay": {"/usr/bin/python3", "../clients/pika/delayed.py"},
	"tutorials-pika":      {"/usr/bin/python3", "../clients/pika/tutorials.py"},
	"tutorials-amqplib":   {"node", "../clients/node/tutorials.js"},
}

// TestApplications runs all applications at the same time on three nodes. Not for RabbitMQ is Celery's: its quorum queues refuse
// the prefetch of a whole channel, which Celery sets.
func TestApplications(t *testing.T) {
	t.Parallel()
	urls := foreignURLs()
	if urls == nil {
		urls = sharedCluster(t, 3).URLs()
	}
	for name, command := range applications {
		if name == "celery" && foreignURLs() != nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runClient(t, append(command, urls[len(name)%len(urls)]), nil)
		})
	}
}
