// Package auth knows users, passwords and permissions, and answers whether a user
// may do a thing. It is pure: users and permissions are stored by the catalog,
// connections are the gateways' affair.
//
// Order of use at a login: parse the response of the mechanism ([ParsePlain],
// [ParseAMQPLain]), find the user, [User.Login]. For each operation: find the
// [Permission] of user and vhost and ask [Permission.Check]. A permission that was
// not found allows nothing.
package auth
