import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;

import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Threads that send half messages, one after the other each, and COMMIT every one at once.
 *
 * <p>Arguments: name server, topic, threads, bytes of a body, seconds of warm-up, seconds. Standard output is one line
 * of JSON; standard error has the first error.
 *
 * <p>A latency is that of the whole call: the half message, stored, and COMMIT, which the client sends one-way.
 */
public final class HalfMessages {
    private static final String GROUP = "dropgate-bench-java";
    /** Microseconds, one counter each. The client gives up after 3 s; the last counter takes what is longer. */
    private static final int LONGEST_US = 4_000_000;

    private final TransactionMQProducer producer = new TransactionMQProducer(GROUP);
    private final ExecutorService pool;
    private final AtomicBoolean failedBefore = new AtomicBoolean();
    private final String topic;
    private final byte[] body;
    private final int threads;

    private HalfMessages(String nameServer, String topic, int threads, int bytes) throws MQClientException {
        this.topic = topic;
        this.threads = threads;
        body = new byte[bytes];
        new Random(1).nextBytes(body);
        pool = Executors.newFixedThreadPool(threads);
        producer.setNamesrvAddr(nameServer);
        producer.setTransactionListener(new CommitAtOnce());
        // A second attempt would hide an error in a latency, and leave a half message that nobody ends.
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
    }

    public static void main(String[] arguments) throws Exception {
        int threads = Integer.parseInt(arguments[2]);
        HalfMessages bench = new HalfMessages(arguments[0], arguments[1], threads, Integer.parseInt(arguments[3]));
        try {
            Phase warmUp = bench.run(Double.parseDouble(arguments[4]));
            System.out.println(bench.run(Double.parseDouble(arguments[5])).json(warmUp.count.get()));
        } finally {
            bench.pool.shutdown();
            bench.producer.shutdown();
        }
    }

    /** Its seconds end when the last call has its answer, so all that was sent is in its count. */
    private Phase run(double seconds) throws Exception {
        Phase phase = new Phase();
        long began = System.nanoTime();
        long until = began + (long) (seconds * 1e9);
        Callable<Void> loop = () -> {
            while (System.nanoTime() < until) {
                call(phase);
            }
            return null;
        };
        List<Callable<Void>> loops = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            loops.add(loop);
        }
        for (Future<Void> done : pool.invokeAll(loops)) {
            done.get();
        }
        phase.beganS = began / 1e9;
        phase.seconds = (System.nanoTime() - began) / 1e9;
        return phase;
    }

    private void call(Phase phase) {
        long began = System.nanoTime();
        try {
            TransactionSendResult result = producer.sendMessageInTransaction(new Message(topic, body), null);
            if (result.getSendStatus() == SendStatus.SEND_OK) {
                phase.answered(System.nanoTime() - began);
            } else {
                failed(phase, result.getSendStatus().toString());
            }
        } catch (MQClientException | RuntimeException error) {
            failed(phase, inOneLine(error));
        }
    }

    private void failed(Phase phase, String why) {
        phase.errors.incrementAndGet();
        if (failedBefore.compareAndSet(false, true)) {
            System.err.println(why);
        }
    }

    /** The client's own words go on with an address of its manual; why a broker is away stands in the cause. */
    private static String inOneLine(Throwable error) {
        String words = String.valueOf(error.getMessage()).lines().findFirst().orElse("");
        String name = error.getClass().getSimpleName() + ": " + words;
        return error.getCause() == null ? name : name + " <- " + inOneLine(error.getCause());
    }

    private static final class CommitAtOnce implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    }

    private static final class Phase {
        final AtomicInteger count = new AtomicInteger();
        final AtomicInteger errors = new AtomicInteger();
        final AtomicIntegerArray callsOfUs = new AtomicIntegerArray(LONGEST_US);
        double beganS;
        double seconds;

        void answered(long nanoseconds) {
            callsOfUs.incrementAndGet((int) Math.min(nanoseconds / 1_000, LONGEST_US - 1));
            count.incrementAndGet();
        }

        String json(int warmUp) {
            return String.format(
                    Locale.ROOT,
                    "{\"count\":%d,\"seconds\":%.6f,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"p999_ms\":%.3f,"
                            + "\"errors\":%d,\"warm_up\":%d,\"began_s\":%.6f}",
                    count.get(), seconds, rankMs(0.5), rankMs(0.99), rankMs(0.999), errors.get(), warmUp, beganS);
        }

        /** By nearest rank; 0 of nothing. */
        private double rankMs(double share) {
            long wanted = (long) Math.ceil(share * count.get());
            int us = 0;
            for (long seen = callsOfUs.get(0); seen < wanted; seen += callsOfUs.get(us)) {
                us++;
            }
            return us / 1_000.0;
        }
    }
}
