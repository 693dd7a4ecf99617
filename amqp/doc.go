// Package amqp is the codec of AMQP 0-9-1 in RabbitMQ's dialect: frames, methods,
// content headers, message properties, field tables and the errors of the
// protocol. It turns bytes into values and back. It owns no socket, no session
// state and no policy; package gateway/amqp does.
//
// # Duties of a caller, in the order of a connection
//
//  1. Read the protocol header with [FrameReader.Header], classify it with
//     [RecognizeHeader], and answer a header that is not accepted with
//     [HeaderKind.Answer] before closing.
//  2. Read frames with [FrameReader.Next]. Until connection.tune-ok the reader
//     accepts [FrameMaxInitial] bytes; call [FrameReader.SetMax] with the
//     negotiated value after that.
//  3. Decode method frames with [Decode], or with the Decode method of a struct
//     kept for reuse. [MethodID.Info] tells which side may send a method, whether
//     content follows and which answers it accepts.
//  4. Parse the header frame with [ParseContentHeader] and check its properties
//     once with [RawProperties.Validate]; they may then be stored, forwarded and
//     read piecemeal as raw bytes.
//  5. Build output with the Append functions into a buffer of the caller and write
//     it in one go.
//
// # Ownership of memory
//
// A [Frame] and everything called "raw" alias the reader's buffer and are valid
// until the next call of [FrameReader.Next]; keep them with Clone or by copying.
// Decoded methods, tables, [Properties] and strings are copies and never alias
// their input. Functions called Append… take and return the destination like the
// append built-in and never keep it.
//
// # Errors
//
// Everything the peer can do wrong is reported as an [*Error] that carries the
// reply code the protocol assigns to it. Errors of the underlying reader are
// passed on unchanged.
package amqp

//go:generate go run ./spec/gen
