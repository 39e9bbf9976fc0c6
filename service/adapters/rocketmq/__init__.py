"""RocketMQ: `remoting` asks a broker as an operator does; the transports beside it send and receive."""
