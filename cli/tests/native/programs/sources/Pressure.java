// Threads that allocate more than the heap holds while hot methods are compiled, with locks, monitors,
// exceptions and a parallel stream. Its output does not depend on the order in which threads run.

import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.concurrent.locks.*;
import java.util.stream.*;

public class Pressure {
    static long mix(long sum, long number) {
        sum = (sum ^ number) * 0x100000001b3L;
        return sum ^ (sum >>> 29);
    }

    /** Keeps a tenth of what it allocates, for a while. */
    static long allocate(int seed) {
        Map<Integer, byte[]> kept = new HashMap<>();
        StringBuilder text = new StringBuilder();
        long sum = seed;
        for (int i = 0; i < 20000; i++) {
            byte[] bytes = new byte[100 + (i * 37 + seed) % 8000];
            bytes[bytes.length - 1] = (byte) i;
            if (i % 10 == 0) kept.put(i / 10 % 200, bytes);
            sum = mix(sum, bytes.length + bytes[bytes.length - 1]);
            if (i % 50 == 0) text.append(Long.toHexString(sum));
            if (text.length() > 3000) text = new StringBuilder(text.substring(2000));
        }
        for (byte[] bytes : kept.values()) sum = mix(sum, bytes.length);
        return mix(sum, text.toString().hashCode());
    }

    static int depth(int number) {
        return number == 0 ? 0 : 1 + depth(number - 1);
    }

    static int endless(int number) {
        return 1 + endless(number + 1);
    }

    static class Turn {
        int turn;
        long order;

        synchronized void take(int me, int all) throws InterruptedException {
            while (turn % all != me) wait();
            order = mix(order, me);
            turn++;
            notifyAll();
        }
    }

    public static void main(String[] words) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(4);
        List<Future<Long>> sums = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            int seed = i;
            sums.add(threads.submit(() -> allocate(seed)));
        }
        for (Future<Long> sum : sums) System.out.println("sum " + sum.get());

        Turn turn = new Turn();
        List<Future<?>> turns = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            int me = i;
            turns.add(threads.submit(() -> {
                for (int k = 0; k < 100; k++) turn.take(me, 4);
                return null;
            }));
        }
        for (Future<?> one : turns) one.get();
        System.out.println("turns " + turn.turn + " " + turn.order);

        // Faults that the virtual machine makes exceptions of, in interpreted and in compiled code.
        List<Future<Integer>> failures = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            failures.add(threads.submit(() -> {
                int failed = 0;
                String[] none = new String[10];
                for (int k = 0; k < 20000; k++) {
                    try {
                        failed += none[k % 11].length();
                    } catch (NullPointerException | ArrayIndexOutOfBoundsException error) {
                        failed++;
                    }
                }
                try {
                    failed += endless(0);
                } catch (StackOverflowError error) {
                    failed++;
                }
                return failed + depth(500);
            }));
        }
        for (Future<Integer> failed : failures) System.out.println("failed " + failed.get());

        ReadWriteLock lock = new ReentrantReadWriteLock();
        ConcurrentMap<Integer, Long> shared = new ConcurrentHashMap<>();
        long[] under = new long[1];
        CountDownLatch done = new CountDownLatch(4);
        for (int i = 0; i < 4; i++) {
            int me = i;
            threads.execute(() -> {
                for (int k = 0; k < 2000; k++) {
                    shared.merge(k % 100, (long) me, Long::sum);
                    lock.writeLock().lock();
                    under[0] += k;
                    lock.writeLock().unlock();
                }
                done.countDown();
            });
        }
        done.await();
        long all = shared.values().stream().mapToLong(Long::longValue).sum();
        System.out.println("shared " + all + " " + under[0]);
        System.out.println("stream " + LongStream.range(0, 300000).parallel().map(n -> mix(n, 7)).sum());

        ByteBuffer[] outside = new ByteBuffer[20];
        long bytes = 0;
        for (int i = 0; i < 200; i++) {
            outside[i % 20] = ByteBuffer.allocateDirect(100000 + i);
            outside[i % 20].put(i, (byte) 1);
            bytes += outside[i % 20].capacity() + outside[i % 20].get(i);
        }
        System.gc();
        System.out.println("outside " + bytes);
        threads.shutdown();
        System.out.println("ended " + threads.awaitTermination(1, TimeUnit.MINUTES));
    }
}
