// Package process tests Warren as its users meet it: real nodes, real clients,
// real signals.
//
// The scenarios in the files named after a subject (deliver, publish, expiry,
// limits, deadletter, refuse) run on a single node and through every node of a
// cluster of three. They say what an AMQP client of RabbitMQ may rely on, so
// they also run against RabbitMQ itself:
//
//	WARREN_TEST_AMQP_URLS=amqp://guest:guest@127.0.0.1:5672/ go test ./test/process
//
// takes the brokers at these addresses (comma-separated) in place of Warren's
// and leaves out what needs Warren's own processes. The other files hold what
// happens to nodes: failover, restarts, bad input, and the clients written in
// other languages.
package process
