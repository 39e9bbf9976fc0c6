"""The transport `rocketmq4`: RocketMQ's classic remoting protocol, on rocketmq-client-python over librocketmq."""
