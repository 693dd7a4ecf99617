// Package shovel moves messages from one queue or exchange to another one, on this cluster or any other broker that speaks AMQP 0-9-1, as
// RabbitMQ's dynamic shovels do (https://www.rabbitmq.com/docs/shovel-dynamic): a consumer here, a publisher there, and an
// acknowledgement when the destination has confirmed.
//
// A [Definition] is what a shovel is to do, read from the JSON of a runtime parameter. A [Worker] does it: it connects, forwards, and connects again
// after a failure. A [Crew] keeps the workers of one node in step with what the catalog has. See docs/adr/0058-shovels.md.
//
// With ack mode on-confirm, which is the default, a message leaves its source only after the destination has taken it over: one that is
// refused, or that no queue there wants, is kept and tried again. It may arrive twice if a connection breaks in between.
package shovel
