// Package remote has agents on other machines do work, as tasks of kind remote_agent. It speaks the Agent2Agent
// protocol by package a2a: it begins a task of the agent, follows it to its end, and copies its artifacts to the
// local output file.
//
// A run begins one task there, however often the host dies, if the agent lists its tasks. The local output has no
// gaps and no duplicates. A stop cancels the task, or the receipt names it. The task continues when this host closes,
// and the next host adopts it. The package knows neither what the task does nor which agent does it.
package remote
