// Package acpclient runs agents of other vendors that speak the Agent Client Protocol (ACP, version 1), or a
// protocol of their vendor that package headless translates.
//
// An [Agent] is one program as an [agent.Model]: each call of it is one turn of the agent (session/prompt). So an
// agent of another vendor is a task like any other. The Agent owns the process, the connection and the session,
// serves the agent's requests for files, commands and permissions, and restarts a process that has died, at most
// 3 times. The opener judges every request, see [Options]. Lines, turns and times are bounded, and the end that an
// agent reports counts only for its own turn.
//
// [Driver] runs the conversation around an Agent. It ends everything that the agent has started, and its result
// lists the signals sent and the surviving processes.
package acpclient
