import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** Copies a topic with Flink exactly once: a transaction for each checkpoint. It goes on from the checkpoint that is named. */
public class Copy {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        var settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "500ms");
        settings.setString("execution.checkpointing.dir", arguments[1]);
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("execution.checkpointing.num-retained", "3");
        settings.setString("rest.bind-address", "127.0.0.1");
        settings.setString("rest.bind-port", "20000-32000");
        settings.setString("taskmanager.memory.network.min", "32mb");
        settings.setString("taskmanager.memory.network.max", "32mb");
        if (arguments.length > 2) {
            settings.setString("execution.state-recovery.path", arguments[2]);
        }
        var flink = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        flink.setParallelism(2);

        var source = KafkaSource.<String>builder()
            .setBootstrapServers(bootstrap)
            .setTopics("in")
            .setGroupId("copy")
            .setProperty("isolation.level", "read_committed")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        var producer = new Properties();
        producer.put("transaction.timeout.ms", "60000");
        var sink = KafkaSink.<String>builder()
            .setBootstrapServers(bootstrap)
            .setKafkaProducerConfig(producer)
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("copy")
            .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                .setTopic("out").setValueSerializationSchema(new SimpleStringSchema()).build())
            .build();
        flink.fromSource(source, WatermarkStrategy.noWatermarks(), "in").sinkTo(sink);
        System.out.println("starting");
        flink.execute("copy");
    }
}
