// Package acpclient runs agents of other vendors that speak the Agent Client Protocol.
//
// An [Agent] is one program as an [agent.Model]: each call of it is one turn of that agent
// (session/prompt), so that an agent of another vendor is a task in the same way as one of ours.
// It owns the process, the connection and the session of the agent, serves what the agent asks
// for, and starts a process that has died again, at most 3 times.
//
// What the agent wants to do is judged by whoever opened it, see [Options]. Nothing that it says
// is believed: lines, turns and times are bounded, and what it says of its end counts only for
// the turn that it was asked for.
//
// [Driver] puts the process around the driver that holds the conversation: it ends all that the
// agent has started, and says in the result what it sent and what is left.
package acpclient
