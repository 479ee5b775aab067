// Makes every server of a program listen on the loopback interface only.
const net = require("node:net");
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  if (typeof port !== "object" && Number.isFinite(Number(port))) {
    return listen.call(this, Number(port), "127.0.0.1", ...rest.filter((a) => typeof a === "function"));
  }
  return listen.call(this, port, ...rest);
};
