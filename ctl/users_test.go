package ctl

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestUserVerbs(t *testing.T) {
	const done = "Done. Don't forget to grant the user permissions to some virtual hosts! See 'warren ctl help set_permissions' to learn more.\n"
	const hashed = `{"hashing_algorithm":"rabbit_password_hashing_sha256","password_hash":"kI3G+/=="}`
	const bcrypted = "$2b$04$abcdefghijklmnopqrstuu.DVVGLfP4tg2vyQ7TXKFqBaf6BeH1Ge"
	const users = `[{"name":"guest","tags":["administrator","a"],"password_hash":"secret"},{"name":"u","tags":[]}]`
	noUser := "Error:\nUser \"gone\" does not exist\n"
	checkVerbs(t, []verbCase{
		{args: []string{"add_user", "a/b", "pw"}, method: "PUT", path: "/api/warren/users/a%2Fb", body: `{"password":"pw"}`, status: 201, out: "Adding user \"a/b\" ...\n" + done},
		{args: []string{"-q", "add_user", "u"}, stdin: "p w\r\nmore", method: "PUT", path: "/api/warren/users/u", body: `{"password":"p w"}`, status: 201},
		{args: []string{"-q", "add_user", "u"}, stdin: "\n", method: "PUT", path: "/api/warren/users/u", body: `{"password":""}`, status: 201},
		{args: []string{"-q", "add_user", "u", "kI3G+/==", "--pre-hashed-password"}, method: "PUT", path: "/api/warren/users/u", body: hashed, status: 201},
		{args: []string{"-q", "add_user", "u", bcrypted, "--pre-hashed-password"}, method: "PUT", path: "/api/warren/users/u", body: `{"hashing_algorithm":"bcrypt","password_hash":"` + bcrypted + `"}`, status: 201},
		{args: []string{"add_user", "u", "pw", "--pre-hashed-password", "--hashing", "bcrypt"}, code: ExitUsage, failed: "exclude each other"},
		{args: []string{"add_user", "u", "pw", "--hashing", "md5"}, code: ExitUsage, failed: "--hashing must be sha256, bcrypt or bcrypt:COST"},
		{args: []string{"change_password", "u", strings.Repeat("x", 73), "--hashing", "bcrypt:4"}, code: ExitData, failed: "bcrypt takes 72 at most"},
		{
			args: []string{"add_user", "u", "pw"}, method: "PUT", path: "/api/warren/users/u", body: `{"password":"pw"}`, status: 400,
			answer: `{"error":"bad_request","reason":"user 'u' already exists"}`, code: ExitSoftware, failed: "Error:\nUser \"u\" already exists\n",
		},
		{args: []string{"add_user", "u"}, code: ExitData, failed: "Password is not provided via argument or stdin"},
		{args: []string{"add_user", "", "pw"}, code: ExitUsage, failed: "user cannot be an empty string"},
		{args: []string{"add_user"}, code: ExitUsage, failed: "not enough arguments"},
		{args: []string{"add_user", "u", "pw", "more"}, code: ExitUsage, failed: "too many arguments"},

		{args: []string{"delete_user", "u"}, method: "DELETE", path: "/api/users/u", status: 204, out: "Deleting user \"u\" ...\n"},
		{args: []string{"delete_user", "gone"}, method: "DELETE", path: "/api/users/gone", status: 404, code: ExitNoUser, failed: noUser},
		{args: []string{"change_password", "u", "pw"}, method: "PUT", path: "/api/warren/users/u/password", body: `{"password":"pw"}`, status: 204, out: "Changing password for user \"u\" ...\n"},
		{args: []string{"-q", "change_password", "u", "--pre-hashed-password"}, stdin: "kI3G+/==\n", method: "PUT", path: "/api/warren/users/u/password", body: hashed, status: 204},
		{args: []string{"change_password", "gone", "pw"}, method: "PUT", path: "/api/warren/users/gone/password", body: `{"password":"pw"}`, status: 404, code: ExitNoUser, failed: noUser},
		{args: []string{"clear_password", "u"}, method: "DELETE", path: "/api/warren/users/u/password", status: 204, out: "Clearing password for user \"u\" ...\n"},
		{args: []string{"clear_password", "gone"}, method: "DELETE", path: "/api/warren/users/gone/password", status: 404, code: ExitNoUser, failed: noUser},
		{
			args: []string{"authenticate_user", "u", "pw"}, method: "POST", path: "/api/warren/users/u/authenticate", body: `{"password":"pw"}`,
			status: 200, answer: `{"authenticated":true}`, out: "Authenticating user \"u\" ...\nSuccess\n",
		},
		{
			args: []string{"-q", "authenticate_user", "u"}, stdin: "pw", method: "POST", path: "/api/warren/users/u/authenticate", body: `{"password":"pw"}`,
			status: 200, answer: `{"authenticated":false}`, code: ExitData, failed: "Error: failed to authenticate user \"u\"",
		},
		{args: []string{"set_user_tags", "u", "a", "b"}, method: "PUT", path: "/api/warren/users/u/tags", body: `{"tags":["a","b"]}`, status: 204, out: "Setting tags for user \"u\" to [a, b] ...\n"},
		{args: []string{"set_user_tags", "u"}, method: "PUT", path: "/api/warren/users/u/tags", body: `{"tags":[]}`, status: 204, out: "Setting tags for user \"u\" to [] ...\n"},
		{args: []string{"set_user_tags", "gone"}, method: "PUT", path: "/api/warren/users/gone/tags", body: `{"tags":[]}`, status: 404, code: ExitNoUser, failed: noUser},
		{args: []string{"set_user_tags"}, code: ExitUsage, failed: "not enough arguments"},
		{args: []string{"list_users"}, method: "GET", path: "/api/users", status: 200, answer: users, out: "Listing users ...\nuser\ttags\nguest\t[administrator, a]\nu\t[]\n"},
		{
			args: []string{"list_users", "--formatter", "json"}, method: "GET", path: "/api/users", status: 200, answer: users,
			out: "[\n" + `{"user":"guest","tags":["administrator","a"]},` + "\n" + `{"user":"u","tags":[]}` + "\n]\n",
		},
		{args: []string{"list_users"}, method: "GET", path: "/api/users", status: 401, answer: `{"reason":"Not administrator user"}`, code: ExitNoPerm, failed: "user 'guest': Not administrator user"},
	})
}

func TestPermissionVerbs(t *testing.T) {
	const listed = `[{"user":"u","vhost":"v","configure":".*","write":"^\\d","read":""}]`
	const topics = `[{"user":"u","vhost":"v","exchange":"x","write":"^a","read":"b"}]`
	checkVerbs(t, []verbCase{
		{
			args: []string{"set_permissions", "-p", "a/b", "u", ".*", "w", ""}, method: "PUT", path: "/api/permissions/a%2Fb/u",
			body: `{"configure":".*","read":"","write":"w"}`, status: 201, out: "Setting permissions for user \"u\" in vhost \"a/b\" ...\n",
		},
		{
			args: []string{"set_permissions", "u", "(", "", ""}, method: "PUT", path: "/api/permissions/%2F/u", body: `{"configure":"(","read":"","write":""}`,
			status: 400, answer: `{"reason":"configure pattern: error"}`, code: ExitSoftware, failed: "Error:\nconfigure pattern: error\n",
		},
		{args: []string{"clear_permissions", "u"}, method: "DELETE", path: "/api/permissions/%2F/u", status: 204, out: "Clearing permissions for user \"u\" in vhost \"/\" ...\n"},
		{
			args: []string{"list_permissions", "-p", "v"}, method: "GET", path: "/api/vhosts/v/permissions", status: 200, answer: listed,
			out: "Listing permissions for vhost \"v\" ...\nuser\tconfigure\twrite\tread\nu\t.*\t^\\d\t\n",
		},
		{
			args: []string{"list_user_permissions", "u"}, method: "GET", path: "/api/users/u/permissions", status: 200, answer: listed,
			out: "Listing permissions for user \"u\" ...\nvhost\tconfigure\twrite\tread\nv\t.*\t^\\d\t\n",
		},
		{args: []string{"list_permissions", "-p", "w"}, method: "GET", path: "/api/vhosts/w/permissions", status: 404, code: ExitData, failed: "Virtual host 'w' does not exist"},
		{args: []string{"list_user_permissions", "gone"}, method: "GET", path: "/api/users/gone/permissions", status: 404, code: ExitNoUser, failed: "User \"gone\" does not exist"},
		{
			args: []string{"set_topic_permissions", "u", "x", "^a", "b"}, method: "PUT", path: "/api/topic-permissions/%2F/u",
			body: `{"exchange":"x","read":"b","write":"^a"}`, status: 204, out: "Setting topic permissions on \"x\" for user \"u\" in vhost \"/\" ...\n",
		},
		{args: []string{"clear_topic_permissions", "u"}, method: "DELETE", path: "/api/topic-permissions/%2F/u", status: 204, out: "Clearing topic permissions for user \"u\" in vhost \"/\" ...\n"},
		{args: []string{"clear_topic_permissions", "u", "a/x"}, method: "DELETE", path: "/api/topic-permissions/%2F/u/a%2Fx", status: 204, out: "Clearing topic permissions on \"a/x\" for user \"u\" in vhost \"/\" ...\n"},
		{
			args: []string{"list_topic_permissions", "-q", "-p", "v"}, method: "GET", path: "/api/vhosts/v/topic-permissions", status: 200, answer: topics,
			out: "user\texchange\twrite\tread\nu\tx\t^a\tb\n",
		},
		{
			args: []string{"list_user_topic_permissions", "u"}, method: "GET", path: "/api/users/u/topic-permissions", status: 200, answer: topics,
			out: "Listing topic permissions for user \"u\" ...\nvhost\texchange\twrite\tread\nv\tx\t^a\tb\n",
		},
		{args: []string{"set_permissions", "u", "", ""}, code: ExitUsage, failed: "not enough arguments"},
		{args: []string{"set_topic_permissions", "u", "x", "", "", ""}, code: ExitUsage, failed: "too many arguments"},
		{args: []string{"clear_topic_permissions", "u", ""}, code: ExitUsage, failed: "a name is empty"},
		{args: []string{"clear_topic_permissions", "", "x"}, code: ExitUsage, failed: "a name is empty"},
		{args: []string{"list_permissions", "-p", ""}, code: ExitUsage, failed: "a name is empty"},
		{args: []string{"delete_user", ".."}, method: "DELETE", path: "/api/users/%2E%2E", status: 204, out: "Deleting user \"..\" ...\n"},
		{args: []string{"clear_permissions", ".", "-p", "..", "-q"}, method: "DELETE", path: "/api/permissions/%2E%2E/%2E", status: 204},
		{args: []string{"delete_user", "u/"}, method: "DELETE", path: "/api/users/u%2F", status: 204, out: "Deleting user \"u/\" ...\n"},
		{args: []string{"clear_topic_permissions", "u", "x", "y"}, code: ExitUsage, failed: "too many arguments"},
		{args: []string{"list_user_permissions"}, code: ExitUsage, failed: "not enough arguments"},
	})
}

// A permission that cannot be given or taken is said to lack the user, or else the vhost. What
// is not there may be taken.
func TestWhichIsGone(t *testing.T) {
	for _, tc := range []struct {
		there []string
		verbs []string
		code  int
		want  string
	}{
		{[]string{"/api/vhosts/v"}, []string{"set", "clear"}, ExitNoUser, "User \"u\" does not exist"},
		{[]string{"/api/users/u"}, []string{"set", "clear"}, ExitData, "Virtual host 'v' does not exist"},
		{[]string{"/api/users/u", "/api/vhosts/v"}, []string{"clear"}, ExitOK, ""},
	} {
		for _, verb := range tc.verbs {
			for _, args := range [][]string{{verb + "_permissions", "u", "", "", ""}, {verb + "_topic_permissions", "u", "x", "", ""}} {
				if verb == "clear" {
					args = args[:2]
				}
				code, _, failed := run(t, func(w http.ResponseWriter, r *http.Request) {
					switch {
					case r.Method == http.MethodPut:
						w.WriteHeader(http.StatusBadRequest)
						_, _ = io.WriteString(w, `{"error":"bad_request","reason":"vhost_or_user_not_found"}`)
					case !slices.Contains(tc.there, r.URL.Path):
						w.WriteHeader(http.StatusNotFound)
					default:
						_, _ = io.WriteString(w, "{}")
					}
				}, append(args, "-p", "v")...)
				if code != tc.code || !strings.Contains(failed, tc.want) {
					t.Errorf("%q with %q: %d %q", args, tc.there, code, failed)
				}
			}
		}
	}
}

func TestVhostVerbs(t *testing.T) {
	const vhosts = `[{"name":"/","tags":[],"description":"Default virtual host","tracing":false},{"name":"v","tags":["a","b"],"default_queue_type":"quorum"}]`
	checkVerbs(t, []verbCase{
		{args: []string{"add_vhost", "a/b"}, method: "PUT", path: "/api/warren/vhosts/a%2Fb", body: `{"description":"","tags":""}`, status: 201, out: "Adding vhost \"a/b\" ...\n"},
		{
			args: []string{"-q", "add_vhost", "v", "--description", "d", "--tags", "a,b", "--default-queue-type", "quorum"}, method: "PUT", path: "/api/warren/vhosts/v",
			body: `{"default_queue_type":"quorum","description":"d","tags":"a,b"}`, status: 204,
		},
		{args: []string{"add_vhost", ""}, code: ExitUsage, failed: "vhost cannot be an empty string"},
		{args: []string{"add_vhost"}, code: ExitUsage, failed: "not enough arguments"},
		{args: []string{"delete_vhost", "v"}, method: "DELETE", path: "/api/vhosts/v", status: 204, out: "Deleting vhost \"v\" ...\n"},
		{args: []string{"delete_vhost", "w"}, method: "DELETE", path: "/api/vhosts/w", status: 404, code: ExitData, failed: "Virtual host 'w' does not exist"},
		{
			args: []string{"delete_vhost", "v"}, method: "DELETE", path: "/api/vhosts/v", status: 412, answer: `{"reason":"vhost 'v' is protected from deletion"}`,
			code: ExitSoftware, failed: "vhost 'v' is protected from deletion",
		},
		{args: []string{"list_vhosts"}, method: "GET", path: "/api/vhosts", status: 200, answer: vhosts, out: "Listing vhosts ...\nname\n/\nv\n"},
		{
			args: []string{"list_vhosts", "-q", "name", "tags", "default_queue_type"}, method: "GET", path: "/api/vhosts", status: 200, answer: vhosts,
			out: "name\ttags\tdefault_queue_type\n/\t[]\t\nv\t[a, b]\tquorum\n",
		},
		{args: []string{"list_vhosts", "colour"}, code: ExitUsage, failed: "Info key(s) colour are not supported"},
	})
}
