package modelwire

const (
	maxTries = 10 // of one call in all
	maxDials = 3  // in a row, of a host that is not reached
)

// rule says how often a call that failed in one way is made.
type rule struct {
	kind  string // of the [agent.ModelError]
	when  string
	tries int    // in all; 1: the call is not repeated
	fix   string // shown after the last attempt
}

// rules returns every way in which a call fails, except an interrupt by the user.
func rules() []rule {
	const (
		crowd   = "wait a while, or run fewer agents at a time"
		network = "check the network, and go on when it holds"
	)
	return []rule{
		{"rate_limit", "status 429; `rate_limit_error` in the stream", maxTries, crowd},
		{"usage_limit", "the same, and the provider names a reset more than a minute away; the agent is " +
			"[parked](unattended.md) until then", 1, ""},
		{"overloaded", "status 529; `overloaded_error` in the stream", maxTries, crowd},
		{"server_error", "status 408, 409, 425 or 5xx; `api_error`, `timeout_error` or an unknown error in the stream",
			maxTries, crowd},
		{"cut", "the connection breaks before or during the answer; the stream ends early or is damaged after " +
			"its start (an answer that is wrong twice in the same way is final)", maxTries, network},
		{"idle", "stream idle timeout: no byte, not even a ping, for two minutes", maxTries, network},
		{"unreachable", "no such host, connection refused, an unreachable proxy, a TLS handshake that does not finish",
			maxDials, ""},
		{"tls", "an invalid certificate, or no common TLS version or cipher", 1, ""},
		{"proxy", "the proxy requires a password or refuses the connection", 1, ""},
		{"bad_answer", "a redirect; status 200 without an event stream; a stream of another API; an answer that is too large",
			1, ""},
		{"bad_request", "another status of 400 to 499; `invalid_request_error` in the stream; a block or a tool that it names " +
			"is left out of the conversation, and the call is made again", 1, ""},
		{"auth", "status 401 or 403; `authentication_error`, `permission_error`", 1, ""},
		{"account", "status 402; the account cannot pay, or its quota is used up", 1, ""},
		{"unknown_model", "status 404; `not_found_error`", 1, ""},
		{"context_overflow", "status 413; the conversation is too long; it is compacted if `context.autoCompact` is on", 1, ""},
	}
}

// ruleOf returns the rule for failures of a kind.
func ruleOf(kind string) rule {
	for _, r := range rules() {
		if r.kind == kind {
			return r
		}
	}
	return rule{kind: kind, tries: 1}
}
